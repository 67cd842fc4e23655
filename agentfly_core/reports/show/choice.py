"""Filter and sort stored episodes."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from agentfly_core.records.messages import texts
from agentfly_core.records.speakers import episode_numbers, episode_reward
from agentfly_core.records.trajectory import Ending, ToolCall, Trajectory
from agentfly_core.runs.episodes import Episodes, Pair, reward_of
from agentfly_core.system.formats.text import did_you_mean

SortOrder = Literal["worst", "best"]


@dataclass(frozen=True, slots=True)
class StoredEpisode:
    """An episode with one conversation for each speaker: `StoredEpisode(((trajectory,
    scored),))`.
    """

    conversations: tuple[Pair, ...]

    @property
    def place(self) -> tuple[str, int]:
        """The id of the problem, and the index of the episode among the problem's episodes:
        `("add-41-58", 2)`.
        """
        trajectory = self.conversations[0][0]
        return trajectory.problem.id, trajectory.chain

    @property
    def reward(self) -> float | None:
        """The mean reward of the speakers (see `episode_reward`), or None if a score is missing."""
        scores = {trajectory.id: scored for trajectory, scored in self.conversations if scored}
        if len(scores) < len(self.conversations):
            return None
        return episode_reward([trajectory for trajectory, _ in self.conversations], scores)


@dataclass(frozen=True, slots=True)
class Conditions:
    """Conditions that select episodes: `Conditions(below=0.5, tool="search")`.

    An episode is selected if all conditions hold. A condition that is not set always holds.

    Args:
        problem: the id of the problem
        chain: the index of the episode among the problem's episodes
        ending: how the episode ended: max_turns, failed, ...
        below: the reward is below this number
        above: the reward is above this number
        tool: this tool was called
        error: a tool answered with an error
        text: the model read or sampled this text
    """

    problem: str | None = None
    chain: int | None = None
    ending: Ending | None = None
    below: float | None = None
    above: float | None = None
    tool: str | None = None
    error: bool = False
    text: str | None = None

    def hold(self, pair: Pair) -> bool:
        """Whether a conversation (its trajectory and score) meets all conditions."""
        trajectory, reward = pair[0], reward_of(pair[1])
        text = (self.text or "").casefold()
        return (
            self.problem in (None, trajectory.problem.id)
            and self.chain in (None, trajectory.chain)
            and self.ending in (None, trajectory.ending)
            and (self.below is None or (reward is not None and reward < self.below))
            and (self.above is None or (reward is not None and reward > self.above))
            and (self.tool is None or self.tool in _tools(trajectory))
            and (not self.error or any(seen.error for seen in trajectory.observations))
            and (not text or any(text in each.casefold() for each in texts(trajectory)))
        )


def matching(stored: Episodes, conditions: Conditions) -> list[StoredEpisode]:
    """Return the episodes with at least one conversation that meets all conditions.

    Raises ValueError if the problem or the tool in a condition does not occur in any episode.
    """
    trajectories = [trajectory for trajectory, _ in stored.pairs]
    existing = {
        "problem": {trajectory.problem.id for trajectory in trajectories},
        "tool": {name for trajectory in trajectories for name in _tools(trajectory)},
    }
    for option, names in existing.items():
        name = getattr(conditions, option)
        if name not in (None, *names):
            hint = did_you_mean(name, sorted(names))
            raise ValueError(f"--{option}: {stored.title} has no {option} {name!r}.{hint}")
    episodes = by_episode(stored.pairs)
    return [each for each in episodes if any(map(conditions.hold, each.conversations))]


def first(episodes: Sequence[StoredEpisode], order: SortOrder, count: int) -> list[StoredEpisode]:
    """Return the first `count` episodes in an order.

    "best" begins with the highest reward, and "worst" with the lowest reward. Unscored episodes
    come last in "best" and first in "worst".
    """

    def rank(episode: StoredEpisode) -> tuple[bool, float]:
        reward = episode.reward or 0.0
        # False sorts first
        unscored_first = (episode.reward is None) == (order == "best")
        return unscored_first, reward if order == "worst" else -reward

    return sorted(episodes, key=rank)[:count]


def by_episode(pairs: Sequence[Pair]) -> list[StoredEpisode]:
    """Group conversations by episode, in the order of their first conversations."""
    episodes: defaultdict[int, list[Pair]] = defaultdict(list)
    for number, pair in zip(episode_numbers(t for t, _ in pairs), pairs, strict=True):
        episodes[number].append(pair)
    return [StoredEpisode(tuple(conversations)) for conversations in episodes.values()]


def _tools(trajectory: Trajectory) -> set[str]:
    calls = [call for turn in trajectory.turns for call in turn.reply.calls]
    return {call.name for call in calls if isinstance(call, ToolCall)}
