"""Score stored episodes in the score stage."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from agentfly_core.authoring.reward import Reward
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.experiment.task import Task
from agentfly_core.pipeline.produce import produce
from agentfly_core.pipeline.stop_conditions import GateClosed, stop_if_unscored
from agentfly_core.records import ledger
from agentfly_core.records.ledger import LedgerRow
from agentfly_core.records.parquet import (
    EPISODES,
    SCORES,
    read_scores,
    read_trajectories,
    write_scores,
)
from agentfly_core.records.problem_schedule import ProblemSchedule
from agentfly_core.records.speakers import by_episode
from agentfly_core.records.timing import Timing, read_timings
from agentfly_core.records.trajectory import Scored, Trajectory, Unscored
from agentfly_core.runs.metrics import outcomes_by_problem, rollout_metrics
from agentfly_core.store.artifact import Artifact
from agentfly_core.system.progress import Progress, report

ScoreEpisodes = Callable[[Sequence[Trajectory], Sequence[Trajectory]], list[Scored]]


def score_episodes(
    experiment: Experiment,
    rollouts: Sequence[Path],
    ready: Sequence[Scored],
    step: int,
    folder: Path,
) -> dict[str, float]:
    """Score the stored episodes of a step, and return metrics.

    The scores and the ledger (a table with a row for each problem) are written to `folder`.
    Episodes with a score in `ready` are not scored again. The ledger and the metrics do not include
    baseline (greedy) episodes. Raises GateClosed if too many episodes, including baselines, are
    unscored.
    """
    everything = [t for rollout in rollouts for t in read_trajectories(rollout / EPISODES)]
    by_id = {one.trajectory_id: one for one in ready}
    unknown = [t for t in everything if t.id not in by_id]
    by_id |= {one.trajectory_id: one for one in experiment.scores(unknown, everything)}
    graded = [by_id[t.id] for t in everything]
    write_scores(folder / SCORES, graded)
    stop_if_unscored(everything, graded, experiment.settings.gates.unscored)
    played = [t for t in everything if t.role != "baseline"]
    scores = [by_id[t.id] for t in played]
    rows = ledger.ledger(step, played, scores)
    if experiment.settings.rollout.curriculum and played[0].role == "train":
        outcomes = outcomes_by_problem(played, scores, experiment.whole.goal)
        rows = _counted(rows, experiment.schedule, played, outcomes)
    ledger.write(folder, rows)
    timings = [timing for rollout in rollouts for timing in read_timings(rollout)]
    metrics = _measured(experiment.whole, played, scores, timings)
    for name, task in experiment.mixture.items():
        own = [t for t in played if t.problem.task == name]
        of_task = _measured(task, own, [by_id[t.id] for t in own], [])
        metrics |= {f"task/{name}/{metric}": value for metric, value in of_task.items()}
    episodes = len(by_episode(played))
    report(Progress("score", step, episodes, episodes, _note(metrics)))
    return metrics


def _note(metrics: Mapping[str, float]) -> str:
    """Return a text with the mean reward and the success rate of the scored episodes.

    If no episode has a score, return "".
    """
    if "rollout/reward" not in metrics:
        return ""
    reward, success = metrics["rollout/reward"], metrics["rollout/success"]
    return f"reward {reward:.3f}, success {100 * success:.1f} %"


def score(
    experiment: Experiment,
    rollouts: Sequence[Artifact],
    step: int,
    what: str,
    before: Artifact | None = None,
    round: int = 0,
    ready: Sequence[Scored] = (),
) -> Artifact:
    """Publish the scores and the ledger (a table of problems) of a step or an evaluation.

    Scores in `before` (an earlier round) and in `ready` are reused. With `rollout.refills`, a step
    may have several rounds: if all episodes of a problem have equal rewards, the next round plays a
    new problem instead. `round` is 0 for the final scores of a step or an evaluation. If
    another round may follow, `round` is the number of the current round: 1, 2, .... The scores of
    each such round are a separate artifact. `what` is the name of the stage in logs.
    """
    target = StageKeys(experiment.settings).scored(rollouts, round)

    def make(folder: Path) -> Mapping[str, float]:
        store = experiment.store
        folders = [store.open(rollout) for rollout in rollouts]
        earlier = read_scores(store.open(before) / SCORES) if before else []
        return score_episodes(experiment, folders, [*ready, *earlier], step, folder)

    return produce(experiment.store, target, make)


def check_rewards(
    episodes: Sequence[Trajectory], scores: Sequence[Scored], unscored: float
) -> None:
    """Check the scores of the trial demonstrations, which are played first in a warm start.

    Raises GateClosed if more than two demonstrations lack a reward, and their share is above
    `unscored`. Demonstrations with the ending FAILED need no reward.
    """
    try:
        stop_if_unscored(episodes, scores, unscored)
    except GateClosed as closed:
        raise GateClosed(f"The warm start was not started: {closed}") from None


def shard_scores(rewards: Iterable[Reward], scores: ScoreEpisodes, rollout: Path) -> list[Scored]:
    """Score one batch (a shard) of a step's episodes, while other batches may still be played.

    The folder `rollout` contains the batch. `scores` is the function `Experiment.scores`. Some
    episodes may need the other batches for their score. These episodes are missing in the result,
    and `score_episodes` scores them later:

    - Episodes without a valid score. For example, `Score.by_speaker` may contain a speaker that
      occurs only in another batch.
    - All episodes, if a reward compares the episodes of a problem. These episodes may be in several
      batches.
    """
    trajectories = read_trajectories(rollout / EPISODES)
    if any(reward.compares for reward in rewards):
        return []
    by_id = {one.trajectory_id: one for one in scores(trajectories, trajectories)}
    left = {t.episode for t in trajectories if isinstance(by_id[t.id].reward, Unscored)}
    return [by_id[t.id] for t in trajectories if t.episode not in left]


def _counted(
    rows: Sequence[LedgerRow],
    schedule: ProblemSchedule,
    played: Sequence[Trajectory],
    outcomes: Mapping[str, Sequence[bool]],
) -> list[LedgerRow]:
    """Set `kind` and `solved` in the rows of a ledger (a table with a row for each problem).

    `kind` is the kind of the problem (see `ProblemSchedule.kind_of`). A pass rate is
    computed for each kind. `solved` is the number of episodes that solved the problem.
    """
    kinds = {t.problem.id: schedule.kind_of(t.problem) for t in played}
    return [
        replace(row, kind=kinds[row.problem], solved=sum(outcomes.get(row.problem, [])))
        for row in rows
    ]


def _measured(
    task: Task, played: Sequence[Trajectory], scores: Sequence[Scored], timings: Sequence[Timing]
) -> dict[str, float]:
    tools = dict.fromkeys(tool.name for tool in task.tools)
    return rollout_metrics(played, scores, timings, task.goal, [*tools])
