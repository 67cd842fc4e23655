"""How a run ended: its held-out success before and after, and where its seconds went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from agentfly_core.artifacts import keys
from agentfly_core.artifacts.run_layout import RunLayout
from agentfly_core.artifacts.stage_metrics import measured
from agentfly_core.artifacts.store import Artifact
from agentfly_core.formats.text import sentence
from agentfly_core.records import ledger
from agentfly_core.records.dataset import shards_of_split
from agentfly_core.records.parquet import EPISODES, SCORES, read_scores, read_trajectories
from agentfly_core.records.run_record import Summary
from agentfly_core.records.trajectory import Unscored
from agentfly_core.runs import intervals
from agentfly_core.runs.context import ExperimentContext, Parent
from agentfly_core.runs.metrics import solved_by_problem

StagesBefore = Mapping[str, Sequence[Artifact]]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """How a policy does on the held-out problems of a split, and when that was known.

    `Evaluation("9f2c...", "test", 0.91, (0.89, 0.93), {"add-41-58": 1.0, ...}, 14.2,
    1763740000000)`; `solved` is the share of each problem's episodes that reached the goal.
    """

    policy: str
    split: str
    success: float
    interval: tuple[float, float]
    solved: Mapping[str, float]
    seconds: float
    time_ms: int


def evaluation(
    context: ExperimentContext,
    policy: Artifact,
    split: str,
    rollouts: Sequence[Artifact],
    scored: Artifact,
) -> Evaluation:
    """Read an evaluation from its stored episodes and scores; raises ValueError where no episode
    has a score.
    """
    played = [
        t for rollout in rollouts for t in read_trajectories(context.store.open(rollout) / EPISODES)
    ]
    scores = read_scores(context.store.open(scored) / SCORES)
    if not (solved := solved_by_problem(played, scores, context.resolved.goal)):
        causes = [score.reward.reason for score in scores if isinstance(score.reward, Unscored)]
        first = sentence("; ".join(list(dict.fromkeys(causes))[:3]))
        stored = ", ".join(artifact.uri for artifact in (*rollouts, scored))
        raise ValueError(
            f"None of the {len(scores)} episodes of the evaluation on {split} has a score, so that "
            f"there is no success to tell. First causes: {first} Mend them, then remove {stored} "
            f"from {context.store.uri}: they are played again."
        )
    success, interval = intervals.success(solved)
    stages = [measured(context.store, artifact) for artifact in (*rollouts, scored)]
    seconds, time_ms = sum(stage.seconds for stage in stages), stages[-1].time_ms
    return Evaluation(policy.digest, split, success, interval, solved, seconds, time_ms)


def stored_evaluation(context: ExperimentContext, policy: Artifact, split: str) -> Evaluation:
    """An evaluation that was made before; raises FileNotFoundError where it was not."""
    data = context.store.artifact(keys.prepare(context.science).uri)
    shards = range(shards_of_split(context.science, context.store.open(data), split))
    found = [
        context.store.artifact(keys.evaluation(context.science, policy, data, split, shard).uri)
        for shard in shards
    ]
    if not found:
        raise FileNotFoundError(f"The split {split} has no problems, so there is no evaluation.")
    return evaluation(
        context,
        policy,
        split,
        found,
        context.store.artifact(keys.scored(context.science, found).uri),
    )


def summarise(
    context: ExperimentContext,
    run: str,
    made: StagesBefore,
    before: Evaluation,
    after: Evaluation,
    mlflow_run_id: str | None,
    prefect_flow_run_ids: list[str],
) -> Summary:
    """The content of summary.json; `made` is what there was before the first step."""
    steps = steps_frame(context, run)
    seconds = {
        stage: sum(measured(context.store, artifact).seconds for artifact in artifacts)
        for stage, artifacts in made.items()
    }
    seconds |= {name: float(steps[f"time/{name}"].sum()) for name in ("rollout", "score", "update")}
    seconds["evaluate"] = before.seconds + after.seconds
    return {
        "run": run,
        "experiment": context.experiment,
        "steps": context.science.steps,
        "success_before": before.success,
        "success_after": after.success,
        "interval_before": list(before.interval),
        "interval_after": list(after.interval),
        "seconds": seconds,
        "policy_digest": after.policy,
        "mlflow_run_id": mlflow_run_id,
        "prefect_flow_run_ids": prefect_flow_run_ids,
    }


def stages_before(
    data: Artifact, model: Artifact, warm_start: Sequence[Artifact], parent: Parent | None
) -> StagesBefore:
    """What was made before the first step, by stage and in order:
    `{"prepare": [...], "model": [...], ...}`.

    The warm start's are its demonstrations and then the policy of each round; a parent's policy is
    no model that was made.
    """
    models = {} if parent else {"model": [model]}
    return {"prepare": [data], **models, **({"warm_start": warm_start} if warm_start else {})}


def stored_stages(context: ExperimentContext, parent: Parent | None) -> StagesBefore:
    """The `stages_before` of a run that is finished, found by their keys."""
    store, science = context.store, context.science
    data = store.artifact(keys.prepare(science).uri)
    model = parent.policy if parent else store.artifact(keys.model(science).uri)
    if (warm_start := science.own_warm_start) is None:
        return stages_before(data, model, [], parent)
    episodes = store.artifact(keys.demonstrations(science, model, data).uri)
    policies = [
        store.artifact(keys.warm_start(science, model, episodes, number).uri)
        for number in range(1, warm_start.rounds + 1)
    ]
    return stages_before(data, model, [episodes, *policies], parent)


def steps_frame(context: ExperimentContext, run: str) -> pd.DataFrame:
    """One row a step of a run with all its metrics, for plots."""
    steps = [RunLayout(run).step(number) for number in context.science.own_steps]
    found = [context.store.read_json(step.metrics) for step in steps]
    return pd.DataFrame([{"step": step["step"], **step["metrics"]} for step in found])


def run_ledger(context: ExperimentContext, run: str) -> pd.DataFrame:
    """Every problem consumed by the run and what became of it, step by step."""
    steps = [RunLayout(run).step(number) for number in context.science.own_steps]
    store = context.store
    return ledger.joined([store.open(store.artifact(step.scored)) for step in steps])
