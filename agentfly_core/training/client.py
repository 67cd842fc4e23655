"""The client of the learner. It sends requests to DeepSpeed workers through a UNIX socket."""

import base64
import json
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from pydantic import TypeAdapter

from agentfly_core.config.site import Site
from agentfly_core.system.hardware import KEEPING_MEMORY, VISIBLE, WAITING, visible
from agentfly_core.system.service import Service, ServiceLost
from agentfly_core.training import job as jobs
from agentfly_core.training import multinode

LEAN = "agentfly_core.training.lean_imports"
WORKER = "agentfly_core.training.worker"
ALONE = {
    "RANK": 0,
    "LOCAL_RANK": 0,
    "WORLD_SIZE": 1,
    "LOCAL_SIZE": 1,
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": 29500,
}
"""Environment variables for a learner with one rank. Such a learner does not use MASTER_PORT."""
REPLY: TypeAdapter[jobs.WorkerReply] = TypeAdapter(jobs.WorkerReply)


def launch(address: str, site: Site) -> tuple[list[str], dict[str, str]]:
    """Return the command and the environment variables that start the workers of a learner.

    The workers listen at the socket `address`. Raises ValueError if GPUs are missing, or if this
    machine is not the first node of the hostfile.
    """
    first, *others = site.nodes
    world: dict[str, Sequence[int | str]] = {**site.nodes}
    if site.device == "cuda":
        world[first] = visible(site.nodes[first])
    command = _started(world, site.device)
    if others:
        multinode.free_port(first)
        command = [sys.executable, "-m", multinode.__name__, "--nodes", *site.nodes, "--", *command]
    threads = str(max(1, site.threads // max(map(len, site.nodes.values()))))
    command += ["--socket", address, "--threads", threads, "--offload", site.offload]
    command += ["--zero-stage", str(site.zero_stage), "--token-budget", str(site.token_budget)]
    command += ["--gradient-checkpointing"] if site.gradient_checkpointing else []
    environment = {"OMP_NUM_THREADS": threads, "DS_ACCELERATOR": site.device, **WAITING}
    environment |= KEEPING_MEMORY if site.device == "cpu" else {}
    return command, environment | {"HF_HUB_DISABLE_PROGRESS_BARS": "1"}


def _started(world: Mapping[str, Sequence[int | str]], device: str) -> list[str]:
    """Return the command that each node runs.

    With several ranks, the command starts the launcher of DeepSpeed, which starts the workers. With
    a single rank, the command starts the worker directly. `world` maps each node to its GPUs, or to
    its ranks on CPUs.
    """
    rank, *others = (rank for node in world.values() for rank in node)
    if not others:  # the launcher imports DeepSpeed and torch, which costs 2 s and 200 MB
        environment = [f"{name}={value}" for name, value in ALONE.items()]
        environment += [f"{VISIBLE}={rank}"] if device == "cuda" else []
        return ["env", *environment, sys.executable, "-u", "-m", LEAN, WORKER]
    ranks = base64.urlsafe_b64encode(json.dumps(world).encode()).decode()
    launcher = ["deepspeed.launcher.launch", "--world_info", ranks]
    if len(world) > 1:
        first = next(iter(world))
        launcher += ["--node_rank", "{node}", "--master_addr", first, "--master_port", "{port}"]
    launcher += ["--log_level", "warning", "--no_local_rank"]
    return [sys.executable, "-m", LEAN, *launcher, "--module", LEAN, WORKER]


class DeepSpeedLearner:
    """Trains a policy in DeepSpeed workers.

    The workers keep the weights and the optimizer state in memory between updates. Each method
    opens its own connection. Each method raises ServiceLost if the workers died or lost their
    state, and LearnerFailed if the request failed.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._label: str | None = None

    def label(self) -> str | None:
        """Return the label, such as "step/6", of the weights and optimizer state in the workers.

        Returns None if the workers have no complete weights and optimizer state in memory.
        """
        label = next(self._results(jobs.AskLabel())).value
        assert not isinstance(label, dict)
        return label

    def update(self, job: jobs.UpdateJob, progress: jobs.OnStep | None = None) -> dict[str, float]:
        """Run an update, and return its metrics.

        If the workers have the state `job.start` in memory, the update starts from this state.
        Otherwise the saved state `job.learner` is loaded. If `job.learner` is None, a new optimizer
        is created; `job.start` must then begin with "fresh:". `progress` is called with the number
        of finished optimizer steps and the number of all steps.

        An optimizer step without a gradient is skipped, for example if all advantages are 0. The
        metric `train/empty_steps` counts these steps. A step with a loss or gradient norm that is
        not finite is also skipped. The metric `train/skipped_steps` counts these steps.
        """
        metrics = next(self._results(jobs.RunUpdate(job=job), progress)).value
        assert isinstance(metrics, dict)
        self._label = job.end
        return metrics

    def save_policy(self, folder: Path) -> None:
        """Write the newest policy and probe.json to a folder.

        A whole model is written in the format of Hugging Face, an adapter in the format of peft.
        The log-probabilities in probe.json show whether a sampler has the right weights.
        """
        next(self._results(jobs.SavePolicy(label=self._label, folder=folder.absolute())))

    def save_state(self, folder: Path) -> Callable[[], object]:
        """Copy the weights and optimizer state in the workers, and write them in the background.

        A run that continues from the copy gives exactly the same policies as this run. Returns a
        function that waits until the copy is written.
        """
        results = self._results(jobs.SaveState(label=self._label, folder=folder.absolute()))
        next(results)
        return partial(next, results)

    def _results(
        self, request: jobs.WorkerRequest, progress: jobs.OnStep | None = None
    ) -> Iterator[jobs.Result]:
        with (
            suppress(ConnectionError),
            socket.socket(socket.AF_UNIX) as channel,
            channel.makefile("rw") as lines,
        ):
            self._service.wait(lambda: channel.connect_ex(self._service.address) == 0)
            print(request.model_dump_json(), file=lines, flush=True)
            for line in lines:
                match REPLY.validate_json(line):
                    case jobs.StepsDone(done=done, total=total):
                        if progress:
                            progress(done, total)
                    case jobs.Failure(error=error, lost=lost):
                        raise ServiceLost(error) if lost else jobs.LearnerFailed(error)
                    case jobs.Result() as result:
                        yield result
        raise self._service.lost(f"died during {request.op!r}")
