"""The summary of a run: held-out success before and after, and seconds by stage."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from statistics import fmean

from agentfly_core.config.tasks import TASK
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.experiment.run_layout import RunLayout, metrics_of
from agentfly_core.experiment.run_policies import Parent
from agentfly_core.models.type_names import DataFrame
from agentfly_core.records import intervals, ledger
from agentfly_core.records.intervals import Rate
from agentfly_core.records.parquet import SCORES, read_scores
from agentfly_core.records.run_record import Details, Summary
from agentfly_core.records.trajectory import Problem, Scored, Trajectory, Unscored, tag
from agentfly_core.runs.episodes import trajectories_in
from agentfly_core.runs.metrics import outcomes_by_problem
from agentfly_core.runs.run import Run, StagesBefore, stages_before
from agentfly_core.store.artifact import Artifact, Pointer
from agentfly_core.store.stage_metrics import measured
from agentfly_core.store.store import Store
from agentfly_core.system.formats.foreign_names import one_part
from agentfly_core.system.formats.json_value import JSON
from agentfly_core.system.formats.text import sentence


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The success of a policy on the held-out problems of a split, and the time of its evaluation.

    `Evaluation("9f2c...", "test", 0.91, (0.89, 0.93), {"add-41-58": 1.0, ...}, 14.2, 1763740000000,
    {4: Rate(...)}, {"kind": {"hard": Rate(...)}}, {"gsm8k": Evaluation(...)})`. For a dataset of
    evaluate.datasets, `split` is the name of the dataset. `solved` is the share of solved episodes
    by problem. `pass_at` contains pass@k by k. `by` contains the success by the values of a fact
    and by task. `datasets` contains evaluations of the same policy on evaluate.datasets.
    """

    policy: str
    split: str
    success: float
    interval: tuple[float, float]
    solved: Mapping[str, float]
    seconds: float
    time_ms: int
    pass_at: Mapping[int, Rate] = field(default_factory=dict)
    by: Mapping[str, Mapping[str, Rate]] = field(default_factory=dict)
    datasets: Mapping[str, Evaluation] = field(default_factory=dict)

    def seconds_since(self, time_ms: int) -> float:
        """Return the total seconds of this evaluation and its `datasets`. Evaluations that ended
        before `time_ms` are not counted.
        """
        own = self.seconds if self.time_ms >= time_ms else 0.0
        return own + sum(other.seconds_since(time_ms) for other in self.datasets.values())

    @property
    def details(self) -> dict[str, JSON]:
        """The optional figures as JSON, without empty entries."""
        pass_at = {str(k): rate.to_json() for k, rate in self.pass_at.items()}
        by = {
            fact: {value: rate.to_json() for value, rate in rates.items()}
            for fact, rates in self.by.items()
        }
        datasets = {name: other.to_json() for name, other in self.datasets.items()}
        details: dict[str, JSON] = {"pass_at": pass_at, "by": by, "datasets": datasets}
        return {name: value for name, value in details.items() if value}

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics of this evaluation, without `datasets`: `evaluate/test/success`,
        `evaluate/test/pass_at_4`, `evaluate/test/kind/hard/success`, each also with `_low` and
        `_high`, the limits of its interval.
        """
        rates = {"success": Rate(self.success, self.interval, len(self.solved))}
        rates |= {f"pass_at_{k}": rate for k, rate in self.pass_at.items()}
        metrics = {"seconds": self.seconds}
        for fact, by_value in self.by.items():
            for value, rate in by_value.items():
                name = f"{one_part(fact)}/{one_part(value)}"
                rates[f"{name}/success"], metrics[f"{name}/problems"] = rate, rate.problems
        for name, rate in rates.items():
            low, high = rate.interval
            metrics |= {name: rate.share, f"{name}_low": low, f"{name}_high": high}
        return {f"evaluate/{self.split}/{name}": value for name, value in metrics.items()}

    def to_json(self) -> dict[str, JSON]:
        """Return the evaluation as JSON, without single problems."""
        rate = Rate(self.success, self.interval, len(self.solved))
        return {"policy": self.policy, **rate.to_json(), **self.details}


@dataclass(frozen=True, slots=True)
class Evaluations:
    """Reads the stored evaluations of an experiment: `Evaluations(experiment).stored(policy,
    "test", data)`.
    """

    experiment: Experiment

    def stored(self, policy: Pointer, split: str, data: Pointer) -> Evaluation:
        """Read the evaluation of a policy. Raises FileNotFoundError if it is not complete."""
        return self.of(policy, split, *self.artifacts(policy, split, data))

    def episodes(
        self, policy: Pointer, split: str, data: Pointer
    ) -> tuple[list[Trajectory], list[Scored]]:
        """Read the evaluation's episodes and scores. Raises FileNotFoundError if a part is
        missing.
        """
        played, scored = self.artifacts(policy, split, data)
        store = self.experiment.store
        return trajectories_in(store, played), read_scores(store.open(scored) / SCORES)

    def is_complete(self, policy: Pointer, split: str, data: Pointer) -> bool:
        """Whether the episodes of all problems of a split are stored, scored and undamaged."""
        store, shards = self.experiment.store, self.experiment.evaluation_keys(policy, data, split)
        played = [manifest for shard in shards if (manifest := store.find(shard))]
        scored = StageKeys(self.experiment.settings).scored
        return len(played) == len(shards) and store.find(scored(played)) is not None

    def artifacts(
        self, policy: Pointer, split: str, data: Pointer
    ) -> tuple[list[Artifact], Artifact]:
        """Return the artifacts with the evaluation's episodes, and the artifact with their scores.

        Raises FileNotFoundError if a part is missing.
        """
        store, keys = self.experiment.store, StageKeys(self.experiment.settings)
        targets = self.experiment.evaluation_keys(policy, data, split)
        shards = [store.artifact(target.uri) for target in targets]
        if not shards:
            raise FileNotFoundError(f"The split {split} is empty and was not evaluated.")
        return shards, store.artifact(keys.scored(shards).uri)

    def with_datasets(self, policy: Pointer, evaluation: Evaluation) -> Evaluation:
        """Add the complete evaluations on evaluate.datasets to an evaluation."""
        datasets = {}
        for name, dataset in self.experiment.settings.evaluate.datasets.items():
            with suppress(FileNotFoundError):  # this dataset was added to the settings later
                there = self.experiment.on(self.experiment.settings.on(dataset))
                other = Evaluations(there).stored(policy, "test", there.dataset)
                datasets[name] = replace(other, split=name)
        return replace(evaluation, datasets=datasets)

    def of(
        self, policy: Pointer, split: str, rollouts: Sequence[Pointer], scored: Pointer
    ) -> Evaluation:
        """Compute an evaluation from stored episodes and their scores.

        Raises ValueError if no episode has a score.
        """
        store, settings = self.experiment.store, self.experiment.settings
        played = trajectories_in(store, rollouts)
        scores = read_scores(store.open(scored) / SCORES)
        outcomes = outcomes_by_problem(played, scores, self.experiment.whole.goal)
        solved = {problem: fmean(values) for problem, values in outcomes.items()}
        stages = (*rollouts, scored)
        if not solved:
            causes = [one.reward.reason for one in scores if isinstance(one.reward, Unscored)]
            stored = ", ".join(artifact.uri for artifact in stages)
            raise ValueError(
                f"No episode of the evaluation on {split} has a score: {sentence(causes[0])} Fix "
                f"the cause, remove {stored} from {store.uri}, and evaluate again."
            )
        groups: dict[str, Callable[[Problem], str]] = {}
        if settings.tasks:
            groups[TASK] = attrgetter("task")
        if fact := settings.evaluate.by:
            groups[fact] = partial(tag, fact=fact, setting="evaluate.by")
        problems = [t.problem for t in played]
        measures = [measured(store, artifact) for artifact in stages]
        return Evaluation(
            policy.digest,
            split,
            *intervals.success(solved),
            solved,
            sum(stage.seconds for stage in measures),
            measures[-1].time_ms,
            pass_rates(outcomes, settings.evaluate.pass_at),
            {name: rates_by(value_of, problems, solved) for name, value_of in groups.items()},
        )


def rates_by(
    value_of: Callable[[Problem], str], problems: Iterable[Problem], solved: Mapping[str, float]
) -> dict[str, Rate]:
    """Group problems by `value_of(problem)`, and return the success rate of each group, sorted by
    that value: `{"hard": Rate(...)}`.
    """
    groups: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for problem in problems:
        if problem.id in solved:
            groups[value_of(problem)][problem.id] = solved[problem.id]
    return {value: Rate.of(groups[value]) for value in sorted(groups)}


def pass_rates(outcomes: Mapping[str, Sequence[bool]], sizes: Iterable[int]) -> dict[int, Rate]:
    """Compute pass@k by k over the problems with at least k scored episodes: `{4: Rate(...)}`."""
    chances = {
        k: {p: intervals.pass_at(k, sum(s), len(s)) for p, s in outcomes.items() if len(s) >= k}
        for k in sizes
    }
    return {k: Rate.of(each) for k, each in chances.items() if each}


def summarise(run: Run, policy: Pointer, evaluations: Sequence[Evaluation]) -> Summary:
    """Make the content of summary.json.

    `evaluations` contains the evaluations before and after training; empty without rewards. The
    seconds do not include stages and evaluations that ended before this run began.
    """
    steps, begun = steps_frame(run.store, run.name, run.settings.own_steps), run.created_ms
    made = stages_before(run.store, run.name)
    stages = {stage: [measured(run.store, one) for one in made[stage]] for stage in made}
    seconds = {
        stage: sum(each.seconds for each in measures if each.time_ms >= begun)
        for stage, measures in stages.items()
    }
    of_steps = ("rollout", "score", "update") if run.settings.own_steps else ()
    seconds |= {name: float(steps[f"time/{name}"].sum()) for name in of_steps}
    seconds["evaluate"] = sum(one.seconds_since(begun) for one in evaluations)
    details = _details(*evaluations) if evaluations else Details()
    if not run.settings.own_steps:
        details["losses"] = losses(run.store, made.get("warm_start", ()))
    return {
        "run": run.name,
        "experiment": run.experiment.name,
        "steps": run.settings.steps,
        **details,
        "seconds": seconds,
        "policy_digest": policy.digest,
        "prefect_flow_run_ids": run.links("prefect_flow_run_ids"),
    }


def _details(before: Evaluation, after: Evaluation) -> Details:
    success: Details = {
        "success_before": before.success,
        "success_after": after.success,
        "interval_before": list(before.interval),
        "interval_after": list(after.interval),
    }
    if before.details or after.details:
        success["evaluations"] = {"before": before.to_json(), "after": after.to_json()}
    return success


def losses(store: Store, warm_start: Sequence[Pointer]) -> list[dict[str, float]]:
    """Return the losses of the rounds of a warm start: `[{"loss": 1.2, "held_out_loss": 1.3}]`.

    `warm_start` contains the demonstrations, followed by the policy of each round.
    """
    rounds = [measured(store, policy).metrics for policy in warm_start[1:]]
    names = ("loss", "held_out_loss")
    return [{n: one[f"train/{n}"] for n in names if f"train/{n}" in one} for one in rounds]


def before_steps(
    data: Pointer, model: Pointer, warm_start: Sequence[Pointer], parent: Parent | None
) -> StagesBefore:
    """Return the stages before the first step in order: `{"prepare": [...], "model": [...], ...}`.

    The stage `warm_start` contains the demonstrations, followed by the policy of each round. A run
    with a parent has no stage `model`.
    """
    models = {} if parent else {"model": [model]}
    return {"prepare": [data], **models, **({"warm_start": warm_start} if warm_start else {})}


def steps_frame(store: Store, run: str, steps: Iterable[int]) -> DataFrame:
    """Return a table of all metrics with a row for each step, for plots.

    Raises Damaged if `metrics_of` does.
    """
    import pandas as pd  # takes half a second

    measures = [metrics_of(store, RunLayout(run).step(number)) for number in steps]
    return pd.DataFrame([{"step": step["step"], **step["metrics"]} for step in measures])


def run_ledger(store: Store, run: str, steps: Iterable[int]) -> DataFrame:
    """Return the ledger of these steps of a run: each problem with its outcome."""
    layouts = [RunLayout(run).step(number) for number in steps]
    return ledger.joined([store.open(store.artifact(step.scored)) for step in layouts])
