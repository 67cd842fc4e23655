"""Speed of experiments' environments: episodes per second and the latency of a turn.

    python -m benchmarks.environments [--experiment shop office] [--at-once 1 8 32]
        [--policy oracle] [--episodes 64] [--repeats 3]

Each experiment is played like with `agentfly play`, by any of its policies, with `--at-once`
concurrent episodes. The episodes are stored and scored. The latency is the time from a reply to the
next prompt of its episode. It consists of the tools, the environment, the template, and the wait
for other episodes on the event loop. The experiments take turns; the table has medians of all runs.
"""

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np

from agentfly_core.experiment.experiment import Experiment
from agentfly_core.inference.sampler import Request, Sampler
from agentfly_core.pipeline.play.episodes import PlayRequest, prepare
from agentfly_core.pipeline.play.mode import Mode, WrappedSampler
from agentfly_core.records.trajectory import Sampled
from agentfly_core.rollout.frozen import Cast
from agentfly_core.runs.episodes import Decode
from benchmarks import harness
from flows.experiments import load_experiment

EXPERIMENTS = ["shop", "office", "search"]
COLUMNS = ("experiment", "at once", "episodes/s", "turns/s", "p50, ms", "p95, ms")
Episode = tuple[str, int]


class Measured(NamedTuple):
    """The measurements of a run.

    `episodes` and `turns` are numbers per second, and `latencies` are seconds. An example is
    `Measured(episodes=212.0, turns=850.0, latencies=[0.002, 0.011])`.
    """

    episodes: float
    turns: float
    latencies: list[float]


@dataclass
class Timed(Mode):
    """The usual mode of play. It also records the time from each reply to the next request."""

    replied: dict[Episode, float] = field(default_factory=dict)
    latencies: list[float] = field(default_factory=list)

    def sampler(self, sampler: Sampler, decode: Decode) -> Sampler:
        """Wrap the sampler to time its requests."""
        return WrappedSampler(sampler, lambda session: _Session([session], {}, {}, self))


@dataclass(eq=False)
class _Session(Cast):
    """A session of a sampler that records the times of replies and requests in a `Timed` mode."""

    mode: Timed

    async def sample(self, request: Request) -> Sampled:
        episode = request.conversation.problem.id, request.conversation.chain
        if replied := self.mode.replied.get(episode):
            self.mode.latencies.append(time.perf_counter() - replied)
        reply = await super().sample(request)
        self.mode.replied[episode] = time.perf_counter()
        return reply


def main() -> None:
    """Play all experiments, and print the table."""
    options = harness.parser(
        __doc__,
        experiment=EXPERIMENTS,
        at_once=[1, 8, 32],
        policy="oracle",
        episodes=64,
        repeats=3,
    ).parse_args()
    with tempfile.TemporaryDirectory(prefix="agentfly-") as store:
        experiments = {
            name: load_experiment(name, [], "local", store) for name in options.experiment
        }
        ways = {
            (name, at_once): partial(
                measured, experiment, options.policy, options.episodes, at_once
            )
            for name, experiment in experiments.items()
            for at_once in options.at_once
        }
        taken = harness.in_turns(ways, options.repeats)
    title = f"policy {options.policy}, {options.episodes} episodes, {options.repeats} runs"
    harness.show(COLUMNS, [row(*one) for one in taken.items()], title)


def measured(experiment: Experiment, policy: str, episodes: int, at_once: int) -> Measured:
    """Play the first problems of the training split, and return the measurements."""
    request = PlayRequest(policy, "train", episodes, "", "python -m benchmarks.environments")
    mode = Timed()
    with tempfile.TemporaryDirectory(prefix="agentfly-") as logs:
        played = prepare(experiment, request, at_once).play(Path(logs), mode)
    turns = sum(len(trajectory.turns) for trajectory in played.episodes)
    return Measured(len(played.episodes) / played.seconds, turns / played.seconds, mode.latencies)


def row(way: tuple[str, int], runs: Sequence[Measured]) -> list[str]:
    """Return the table row of an experiment and a number of concurrent episodes."""
    name, at_once = way
    rates = [median(run.episodes for run in runs), median(run.turns for run in runs)]
    gaps = 1000 * np.percentile([gap for run in runs for gap in run.latencies], [50, 95])
    return [name, str(at_once), *(f"{rate:.0f}" for rate in rates), *(f"{gap:.1f}" for gap in gaps)]


if __name__ == "__main__":
    main()
