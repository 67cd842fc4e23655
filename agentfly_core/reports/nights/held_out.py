"""What a policy did on held-out problems, problem by problem, read from stored episodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from agentfly_core.config.tasks import SINGLE
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.records.parquet import SCORES, read_scores
from agentfly_core.records.speakers import by_episode
from agentfly_core.records.trajectory import BadCall, Scored, Trajectory, Unscored
from agentfly_core.runs.episodes import trajectories_in
from agentfly_core.runs.metrics import solved
from agentfly_core.store.store import ArtifactKey, Pointer, Store

GOAL, TOKENS, UNREADABLE_CALLS = "goal", "tokens", "unreadable_calls"
UNSCORED = "unscored"
REWARD, TASK = "reward/", "task/"
HeldOutMeans = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class HeldOut:
    """A policy's outcomes on held-out problems: means over each problem's scored episodes.

        HeldOut("77b0...", {
            "add-41-58": {
                "goal": 1.0, "reward/exact": 1.0, "tokens": 31.0, "unreadable_calls": 0.0
            },
            "add-12-30": {},
        })

    `dataset` is the digest of the problems' dataset. Means exclude unscored episodes; `unscored` is
    their share of the problem's episodes, left out where it is 0. A problem without a scored
    episode has an empty outcome. In a mixture a problem has the rewards of its task, and as
    `task/sums` the goal once more.
    """

    dataset: str
    by_problem: Mapping[str, HeldOutMeans]

    def where(self, wanted: Callable[[str], bool]) -> HeldOut:
        """The same of those problems whose id is wanted."""
        kept = {name: outcome for name, outcome in self.by_problem.items() if wanted(name)}
        return replace(self, by_problem=kept)


def unscored_share(outcome: HeldOutMeans) -> float:
    """The share of a problem's episodes that are unscored, from 0 to 1."""
    return outcome.get(UNSCORED, 0.0) if outcome else 1.0


def held_out(experiment: Experiment, policy: Pointer, data: Pointer) -> HeldOut:
    """What a policy that was evaluated before did on the test split of a dataset; raises
    FileNotFoundError where it was not.
    """
    shards = experiment.evaluation_keys(policy, data, "test")
    episodes, scores = evaluated_episodes(experiment.store, StageKeys(experiment.settings), shards)
    return HeldOut(data.digest, outcomes(episodes, scores, experiment.whole.goal))


def evaluated_episodes(
    store: Store, keys: StageKeys, shards: Sequence[ArtifactKey]
) -> tuple[list[Trajectory], list[Scored]]:
    """What a policy played in the shards of an evaluation, and its scores; raises FileNotFoundError
    where it was not evaluated before.
    """
    played = [store.artifact(shard.uri) for shard in shards]
    scored = store.artifact(keys.scored(played).uri)
    return trajectories_in(store, played), read_scores(store.open(scored) / SCORES)


def is_evaluated(store: Store, keys: StageKeys, shards: Sequence[ArtifactKey]) -> bool:
    """Whether all shards of an evaluation were played and scored; damaged artifacts do not
    count.
    """
    played = [manifest for shard in shards if (manifest := store.find(shard))]
    return len(played) == len(shards) and store.find(keys.scored(played)) is not None


def outcomes(
    trajectories: Iterable[Trajectory],
    scored: Iterable[Scored],
    goal: str,
) -> dict[str, HeldOutMeans]:
    """The outcome of each problem, as `HeldOut` has it; `goal` is the name of the reward that says
    solved.

    `unreadable_calls` is the share of an episode's calls that could not be read, 0 where it made
    none.
    """
    by_id = {score.trajectory_id: score for score in scored}
    by_problem: dict[str, defaultdict[str, list[float]]] = {}
    unscored: defaultdict[str, list[bool]] = defaultdict(list)
    for episode in by_episode([*trajectories]):
        problem, score = episode[0].problem, by_id[episode[0].id]
        values = by_problem.setdefault(problem.id, defaultdict(list))
        unscored[problem.id].append(isinstance(score.reward, Unscored))
        if isinstance(score.reward, Unscored):
            continue
        calls = [call for one in episode for turn in one.turns for call in turn.reply.calls]
        unreadable = sum(isinstance(call, BadCall) for call in calls)
        reached = float(bool(solved(score, goal)))
        values[GOAL].append(reached)
        if problem.task != SINGLE:
            values[f"{TASK}{problem.task}"].append(reached)
        values[TOKENS].append(float(sum(one.sampled_tokens for one in episode)))
        values[UNREADABLE_CALLS].append(unreadable / max(len(calls), 1))
        for name, value in score.rewards.items():
            # a mixture has its goal beside its rewards
            if problem.task == SINGLE or name != goal:
                values[f"{REWARD}{name}"].append(value)
    means = {
        name: {outcome: fmean(each) for outcome, each in values.items()}
        for name, values in by_problem.items()
    }
    shares = {name: fmean(each) for name, each in unscored.items()}
    return {
        name: {**outcome, **({UNSCORED: shares[name]} if outcome and shares[name] else {})}
        for name, outcome in means.items()
    }
