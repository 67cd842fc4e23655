"""Read the outcomes of a policy on held-out problems from stored episodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from agentfly_core.config.tasks import SINGLE
from agentfly_core.records.speakers import by_episode
from agentfly_core.records.trajectory import BadCall, Scored, Trajectory, Unscored
from agentfly_core.runs.metrics import solved
from agentfly_core.runs.summary import Evaluations
from agentfly_core.store.artifact import Pointer

GOAL, TOKENS, UNREADABLE_CALLS = "goal", "tokens", "unreadable_calls"
UNSCORED = "unscored"
REWARD, TASK = "reward/", "task/"
HeldOutMeans = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class HeldOut:
    """The outcomes of a policy on each held-out problem, as means over the problem's scored
    episodes.

        HeldOut("77b0...", {
            "add-41-58": {
                "goal": 1.0, "reward/exact": 1.0, "tokens": 31.0, "unreadable_calls": 0.0
            },
            "add-12-30": {},
        })

    `dataset` is the digest of the dataset that contains the problems. `by_problem` has the outcomes
    of each problem:

    - `goal`: the share of solved episodes
    - `reward/NAME`: the mean of each reward
    - `task/NAME`: a copy of `goal` under the name of the problem's task. This key exists only in
      a mixture of tasks.
    - `tokens`: the mean number of sampled tokens
    - `unreadable_calls`: the share of tool calls that cannot be parsed
    - `unscored`: the share of episodes without a score; missing if it is 0

    If all episodes of a problem are unscored, the entry of the problem is empty.
    """

    dataset: str
    by_problem: Mapping[str, HeldOutMeans]

    def where(self, wanted: Callable[[str], bool]) -> HeldOut:
        """Return the outcomes of only those problems for which `wanted(id)` is True."""
        kept = {name: outcome for name, outcome in self.by_problem.items() if wanted(name)}
        return replace(self, by_problem=kept)


def unscored_share(outcome: HeldOutMeans) -> float:
    """Return the share of a problem's episodes that are unscored, from 0 to 1."""
    return outcome.get(UNSCORED, 0.0) if outcome else 1.0


def held_out(evaluations: Evaluations, policy: Pointer, data: Pointer) -> HeldOut:
    """Read a policy's mean rewards and other outcomes on the test problems of the dataset `data`.

    Raises FileNotFoundError if the policy was not evaluated on these problems.
    """
    played, scores = zip(*evaluations.episodes(policy, "test", data), strict=True)
    return HeldOut(data.digest, outcomes(played, scores, evaluations.experiment.whole.goal))


def outcomes(
    trajectories: Iterable[Trajectory], scored: Iterable[Scored], goal: str
) -> dict[str, HeldOutMeans]:
    """Compute the outcomes of each problem, with the keys that `HeldOut.by_problem` documents.

    `goal` is the name of the reward that decides success.
    """
    by_id = {score.trajectory_id: score for score in scored}
    by_problem: dict[str, list[HeldOutMeans]] = {}
    for episode in by_episode([*trajectories]):
        score = by_id[episode[0].id]
        lost = isinstance(score.reward, Unscored)
        outcome = {} if lost else _outcome(episode, score, goal)
        by_problem.setdefault(episode[0].problem.id, []).append(outcome)
    return {problem: _means(each) for problem, each in by_problem.items()}


def _outcome(episode: Sequence[Trajectory], score: Scored, goal: str) -> HeldOutMeans:
    """Compute the outcomes of a scored episode, such as `{"goal": 1.0, "tokens": 31.0, ...}`.

    The share of unreadable calls is 0 for an episode without tool calls.
    """
    calls = [call for one in episode for turn in one.turns for call in turn.reply.calls]
    unreadable = sum(isinstance(call, BadCall) for call in calls)
    reached, task = float(bool(solved(score, goal))), episode[0].problem.task
    mixed = task != SINGLE
    # the scores of a mixture contain the goal once more
    rewards = {name: value for name, value in score.rewards.items() if not mixed or name != goal}
    return {
        GOAL: reached,
        **({f"{TASK}{task}": reached} if mixed else {}),
        TOKENS: float(sum(one.sampled_tokens for one in episode)),
        UNREADABLE_CALLS: unreadable / max(len(calls), 1),
        **{f"{REWARD}{name}": value for name, value in rewards.items()},
    }


def _means(episodes: Sequence[HeldOutMeans]) -> HeldOutMeans:
    """Average the outcomes (such as rewards and numbers of tokens) of a problem's episodes.

    The outcomes of unscored episodes are empty mappings.
    """
    scored = [outcome for outcome in episodes if outcome]
    names = dict.fromkeys(name for outcome in scored for name in outcome)
    means = {name: fmean(each[name] for each in scored if name in each) for name in names}
    share = 1 - len(scored) / len(episodes)
    return {**means, UNSCORED: share} if scored and share else means
