"""Cost of orchestration in a step: its wall time minus the time of playing and learning.

    agentfly train quickstart --run overhead --store /tmp/overhead
    python -m benchmarks.overhead overhead --store /tmp/overhead

The times are read from the files of a finished run that was not interrupted. Playing is the union
of the intervals in which any episode generated, used a tool or was rewarded. Learning is the sum of
the learner's forward, backward and optimizer seconds. The weight swap, the checkpoint and start-up
have separate columns. Start-up is the time until the first step, without the stages in it. Rewards
that need only the record are scored in a separate stage, which counts as orchestration here.
"""

import statistics
from dataclasses import dataclass

from agentfly_core.config.experiment import Settings
from agentfly_core.config.site import Site
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.run_layout import RunLayout, rollouts
from agentfly_core.experiment.run_policies import policy_of
from agentfly_core.records.timing import read_timings, union
from agentfly_core.runs.run import stages_before
from agentfly_core.runs.summary import Evaluations
from agentfly_core.store.stage_metrics import measured
from agentfly_core.store.store import Store
from benchmarks import harness
from flows.store import store_at

LEARNING = ("time/forward", "time/backward", "time/optimizer")


@dataclass(frozen=True)
class Step:
    """The seconds of one step."""

    wall: float
    played: float
    learnt: float
    swap: float
    checkpoint: float

    @property
    def orchestration(self) -> float:
        """The seconds that remain after playing, learning, the weight swap and the checkpoint."""
        return self.wall - self.played - self.learnt - self.swap - self.checkpoint


def step(store: Store, run: str, number: int) -> Step:
    """Return the seconds of a step, which must not be the first step.

    They are counted from the end of the previous step's update to the end of this step's update.
    """
    here, before = RunLayout(run).step(number), RunLayout(run).step(number - 1)
    shards = rollouts(store.artifact(here.scored))
    update = measured(store, store.artifact(here.policy))
    ended = measured(store, store.artifact(before.policy)).time_ms
    spans = [
        span
        for shard in shards
        for timing in read_timings(store.open(shard))
        for span in timing.spans
    ]
    return Step(
        wall=(update.time_ms - ended) / 1000,
        played=union((span.start, span.end) for span in spans if span.doing != "waiting"),
        learnt=sum(update.metrics.get(name, 0.0) for name in LEARNING),
        swap=sum(measured(store, shard).metrics["time/swap"] for shard in shards),
        checkpoint=update.metrics["time/checkpoint"],
    )


def startup(store: Store, run: str) -> float:
    """Return the seconds from a run's start to the end of its first evaluation, without stages.

    The seconds of the stages in this time are subtracted. The value is meaningful only if the run
    executed these stages itself, instead of reusing their outputs.
    """
    record = store.read_json(RunLayout(run).record)
    settings = Settings.model_validate(record["settings"])
    site = Site.model_validate(record["site"])
    experiment = Experiment.of(record["experiment"], settings, record["origin"], site, store)
    data = experiment.dataset
    before = Evaluations(experiment).stored(policy_of(store, run, 0), "test", data)
    stages = [made for stage in stages_before(store, run).values() for made in stage]
    took: float = before.seconds + sum(measured(store, artifact).seconds for artifact in stages)
    created_ms: int = record["created_ms"]
    return (before.time_ms - created_ms) / 1000 - took


def main() -> None:
    """Print the seconds of each step, and the medians."""
    parser = harness.parser(__doc__)
    parser.add_argument("run")
    parser.add_argument(
        "--store", default="", help="the run's store (default: .); a new folder has no caches"
    )
    options = parser.parse_args()
    run, store = options.run, store_at(options.store)
    steps = {n: step(store, run, n) for n in RunLayout(run).steps(store) if n > 1}
    names = ("wall", "played", "learnt", "swap", "checkpoint", "orchestration")
    rows = [
        [str(number), *(f"{getattr(one, name):.2f}" for name in names)]
        for number, one in steps.items()
    ]
    medians = [statistics.median(getattr(one, name) for one in steps.values()) for name in names]
    rows.append(["median", *(f"{value:.2f}" for value in medians)])
    note = f"start-up: {startup(store, run):.1f} s"
    harness.show(["step", *names], rows, title=f"{run}: seconds a step", note=note)


if __name__ == "__main__":
    main()
