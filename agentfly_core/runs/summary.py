"""The summary of a run: held-out success before and after training, and seconds of each stage."""

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
from agentfly_core.runs.episodes import scored_in, trajectories_in
from agentfly_core.runs.metrics import outcomes_by_problem, rewards_by_name
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
    {4: Rate(...)}, {"kind": {"hard": Rate(...)}}, {"gsm8k": Evaluation(...)}, {"exact": 0.91})`

    - `policy`: the digest of the policy
    - `split`: the split, or the name of a dataset in the setting evaluate.datasets
    - `solved`: for each problem, the share of its episodes that are solved
    - `seconds`: the total duration of the evaluation's stages
    - `time_ms`: when the evaluation ended, in milliseconds since 1970
    - `pass_at`: pass@k for each k
    - `by`: the success rates of groups of problems. The outer key is "task" for groups by task, or
      the name of a fact (entry of `Problem.facts`) for groups by its value. The inner key is the
      task or the value. `by` may have both outer keys.
    - `datasets`: evaluations of the same policy on the datasets in evaluate.datasets
    - `rewards`: the mean of each reward over the scored episodes
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
    rewards: Mapping[str, float] = field(default_factory=dict)

    def seconds_since(self, time_ms: int) -> float:
        """Return the seconds that a run has spent on this evaluation, including its `datasets`.

        `time_ms` is the time at which the run began. Evaluations that ended before this time are
        not counted, because the run has reused them.
        """
        own = self.seconds if self.time_ms >= time_ms else 0.0
        return own + sum(other.seconds_since(time_ms) for other in self.datasets.values())

    @property
    def details(self) -> dict[str, JSON]:
        """The fields `pass_at`, `by` and `datasets` as JSON. Empty fields are left out."""
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
        """The metrics of this evaluation, for example `evaluate/test/success`,
        `evaluate/test/pass_at_4`, `evaluate/test/kind/hard/success` and
        `evaluate/test/reward_extra/exact/mean`.

        The limits of the 95 % intervals have the same names with `_low` and `_high` appended. The
        evaluations on additional datasets (`datasets`) are not included. Each of them has its own
        property `metrics`.
        """
        rates = {"success": Rate(self.success, self.interval, len(self.solved))}
        rates |= {f"pass_at_{k}": rate for k, rate in self.pass_at.items()}
        means = {f"reward_extra/{name}/mean": mean for name, mean in self.rewards.items()}
        metrics = {"seconds": self.seconds, **means}
        for fact, by_value in self.by.items():
            for value, rate in by_value.items():
                name = f"{one_part(fact)}/{one_part(value)}"
                rates[f"{name}/success"], metrics[f"{name}/problems"] = rate, rate.problems
        for name, rate in rates.items():
            low, high = rate.interval
            metrics |= {name: rate.share, f"{name}_low": low, f"{name}_high": high}
        return {f"evaluate/{self.split}/{name}": value for name, value in metrics.items()}

    def to_json(self) -> dict[str, JSON]:
        """Return the evaluation as JSON. The results of single problems are left out."""
        rate = Rate(self.success, self.interval, len(self.solved))
        rewards = {"rewards": dict(self.rewards)} if self.rewards else {}
        return {"policy": self.policy, **rate.to_json(), **rewards, **self.details}


@dataclass(frozen=True, slots=True)
class Evaluations:
    """Reads the stored evaluations of an experiment: `Evaluations(experiment).stored(policy,
    "test", data)`.
    """

    experiment: Experiment

    def stored(self, policy: Pointer, split: str, data: Pointer) -> Evaluation:
        """Read the evaluation of a policy on a split.

        Raises FileNotFoundError if the evaluation is not complete.
        """
        return self.of(policy, split, *self.artifacts(policy, split, data))

    def episodes(
        self, policy: Pointer, split: str, data: Pointer
    ) -> list[tuple[Trajectory, Scored]]:
        """Read the episodes of an evaluation with their scores.

        Raises FileNotFoundError if episodes or scores are missing.
        """
        _, scored = self.artifacts(policy, split, data)
        return scored_in(self.experiment.store, scored)

    def is_complete(self, policy: Pointer, split: str, data: Pointer) -> bool:
        """Whether the evaluation is complete: all episodes are stored and scored."""
        store, shards = self.experiment.store, self.experiment.evaluation_keys(policy, data, split)
        played = [manifest for shard in shards if (manifest := store.find(shard))]
        scored = StageKeys(self.experiment.settings).scored
        return len(played) == len(shards) and store.find(scored(played)) is not None

    def artifacts(
        self, policy: Pointer, split: str, data: Pointer
    ) -> tuple[list[Artifact], Artifact]:
        """Return the artifacts that contain the episodes of an evaluation, and the artifact that
        contains their scores.

        Raises FileNotFoundError if the evaluation is not complete.
        """
        store, keys = self.experiment.store, StageKeys(self.experiment.settings)
        targets = self.experiment.evaluation_keys(policy, data, split)
        shards = [store.artifact(target.uri) for target in targets]
        if not shards:
            raise FileNotFoundError(f"The split {split} is empty and was not evaluated.")
        return shards, store.artifact(keys.scored(shards).uri)

    def with_datasets(self, policy: Pointer, evaluation: Evaluation) -> Evaluation:
        """Return `evaluation` with the field `datasets` added.

        This field has the policy's evaluations on the datasets in the setting evaluate.datasets.
        Incomplete evaluations are left out.
        """
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
                f"the cause, remove {stored} from {store.uri}, and repeat the evaluation."
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
            rewards={name: fmean(each) for name, each in rewards_by_name(played, scores).items()},
        )


def rates_by(
    value_of: Callable[[Problem], str], problems: Iterable[Problem], solved: Mapping[str, float]
) -> dict[str, Rate]:
    """Group problems by `value_of(problem)`, and return the success rate of each group:
    `{"hard": Rate(...)}`.

    `solved` maps the id of each problem to the share of its episodes that are solved. Problems that
    are missing in `solved` are left out. The groups are sorted by their value.
    """
    groups: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for problem in problems:
        if problem.id in solved:
            groups[value_of(problem)][problem.id] = solved[problem.id]
    return {value: Rate.of(groups[value]) for value in sorted(groups)}


def pass_rates(outcomes: Mapping[str, Sequence[bool]], sizes: Iterable[int]) -> dict[int, Rate]:
    """Compute pass@k for each k in `sizes`: `{4: Rate(...)}`.

    pass@k is the mean over the problems with at least k scored episodes. Without such problems, k
    is left out.
    """
    chances = {
        k: {p: intervals.pass_at(k, sum(s), len(s)) for p, s in outcomes.items() if len(s) >= k}
        for k in sizes
    }
    return {k: Rate.of(each) for k, each in chances.items() if each}


def summarise(run: Run, policy: Pointer, evaluations: Sequence[Evaluation]) -> Summary:
    """Return the content of summary.json.

    `evaluations` contains the evaluation before training and the evaluation after training. It is
    empty for an experiment without rewards. Stages and evaluations that ended before the run began
    count as 0 seconds, because the run has reused their stored results.
    """
    steps, begun = steps_frame(run.store, run.name, run.settings.own_steps), run.created_ms
    made = stages_before(run.store, run.name)
    stages = {stage: [measured(run.store, one) for one in made[stage]] for stage in made}
    if warm := stages.get("warm_start"):
        stages |= {"demonstrate": warm[:1], "warm_start": warm[1:]}
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
    if before.details or after.details or len(after.rewards) > 1:
        success["evaluations"] = {"before": before.to_json(), "after": after.to_json()}
    return success


def losses(store: Store, warm_start: Sequence[Pointer]) -> list[dict[str, float]]:
    """Return the losses of each round of a warm start: `[{"loss": 1.2, "held_out_loss": 1.3}]`.

    `warm_start` contains the demonstrations, followed by the policy of each round.
    """
    rounds = [measured(store, policy).metrics for policy in warm_start[1:]]
    names = ("loss", "held_out_loss")
    return [{n: one[f"train/{n}"] for n in names if f"train/{n}" in one} for one in rounds]


def before_steps(
    data: Pointer, model: Pointer, warm_start: Sequence[Pointer], parent: Parent | None
) -> StagesBefore:
    """Return the outputs of the stages before the first step, in order: `{"prepare": [...],
    "model": [...], "warm_start": [...]}`.

    The entry `warm_start` has the demonstrations, followed by the policy of each warm-start round.
    If the run starts from a policy of another run (`parent`), the entry `model` is left out.
    """
    models = {} if parent else {"model": [model]}
    return {"prepare": [data], **models, **({"warm_start": warm_start} if warm_start else {})}


def steps_frame(store: Store, run: str, steps: Iterable[int]) -> DataFrame:
    """Return a table of the metrics with one row for each step, for plots.

    Raises Damaged if the metrics.json of a step is missing or damaged.
    """
    import pandas as pd  # takes half a second

    measures = [metrics_of(store, RunLayout(run).step(number)) for number in steps]
    return pd.DataFrame([{"step": step["step"], **step["metrics"]} for step in measures])


def run_ledger(store: Store, run: str, steps: Iterable[int]) -> DataFrame:
    """Return the ledger of some steps of a run: a table of played problems and their outcomes."""
    layouts = [RunLayout(run).step(number) for number in steps]
    return ledger.joined([store.open(store.artifact(step.scored)) for step in layouts])
