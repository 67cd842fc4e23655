"""Sites and jobs for the DeepSpeed workers, and their saved files."""

import math
import os
from collections import Counter
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file

from agentfly_core.config.experiment import Update
from agentfly_core.config.site import Site
from agentfly_core.testing.learning import update_job
from tests.support.waiting import LIMIT

DEVICE = os.environ.get("AGENTFLY_DEVICE", "cpu")
"""Where the tests of the learner and of the sampler in the process compute: `cpu` or `cuda`."""
GRPO = {"use": "agentfly_core.algorithms.grpo:GRPO"}
PPO = {"use": "agentfly_core.algorithms.ppo:PPO"}
SFT = {"use": "agentfly_core.algorithms.sft:SFT"}


def site(ranks, **settings):
    """A site with `ranks` ranks on the device.

    Skips the test on a machine with fewer GPUs; one rank is never skipped, and fails there.
    """
    if DEVICE == "cuda" and ranks > max(1, torch.cuda.device_count()):
        pytest.skip(f"needs {ranks} GPUs")
    return Site.model_validate({"device": DEVICE, "ranks": ranks, "token_budget": 96, **settings})


def stored(folder, policy, trajectories, reward=lambda index: float(index % 3 == 0)):
    """The job of an update on these trajectories, every third of which is a success."""
    rewards = [reward(index) for index in range(len(trajectories))]
    return update_job(folder, trajectories, rewards, policy, update=settings(mini_batches=2))


def settings(**changed):
    return Update(**{"learning_rate": 1e-3, **changed})


def saved(learner, folder):
    """Save the policy and the learner's state, and return their folders."""
    for name in ("policy", "learner"):
        (folder / name).mkdir(parents=True)
    learner.save_policy(folder / "policy")
    learner.save_state(folder / "learner")()
    return folder / "policy", folder / "learner"


def after(job, step, policy=None, state="not read"):
    """The job that continues after `step`, without a policy and a state to read only where the
    memory has them.
    """
    policy = str(policy or job.policy)
    return replace(
        job,
        start=f"step/{step}",
        end=f"step/{step + 1}",
        policy=policy,
        learner=str(state),
        seed=step,
    )


def going_on(learner, job, folder, then=after):
    """Saved files after one update and after two; the second update gives the same bytes from
    memory and from disk.
    """
    learner.update(job)
    first = saved(learner, folder / "first")
    learner.update(then(job, 1))
    second = saved(learner, folder / "second")
    learner.update(then(job, 1, *first))
    assert [digests(part) for part in saved(learner, folder / "again")] == [
        digests(part) for part in second
    ]
    return first, second


def digests(folder):
    return {path.name: sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def distance(one, other):
    """How far the weights of two policies are apart."""
    mine, its = (
        load_file(Path(one) / "model.safetensors"),
        load_file(Path(other) / "model.safetensors"),
    )
    return math.sqrt(
        sum((mine[name].double() - its[name].double()).square().sum() for name in mine)
    )


KILLED = Counter()
"""How often `kill_worker` ended the service at an address."""


def kill_worker(service):
    """Kill the first rank with SIGKILL, unless it is dead already."""
    killed = set()
    for process in psutil.process_iter(["cmdline", "environ"]):
        words, variables = (process.info[name] or () for name in ("cmdline", "environ"))
        if service.address in words and "RANK" in variables and variables["RANK"] == "0":
            process.kill()
            process.wait(LIMIT)
            killed.add(process)
    KILLED[service.address] += bool(killed)
