"""Filters and order of stored episodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from agentfly_core.records.messages import texts
from agentfly_core.records.speakers import episode_numbers, episode_reward
from agentfly_core.records.trajectory import Ending, ToolCall, Trajectory
from agentfly_core.runs.episodes import Episodes, Pair, reward_of
from agentfly_core.system.formats.text import did_you_mean

SortOrder = Literal["worst", "best"]


@dataclass(frozen=True, slots=True)
class StoredEpisode:
    """An episode with a conversation for each speaker: `StoredEpisode(((trajectory, scored),))`."""

    conversations: tuple[Pair, ...]

    @property
    def place(self) -> tuple[str, int]:
        """The problem and the number within its group: `("add-41-58", 2)`."""
        trajectory = self.conversations[0][0]
        return trajectory.problem.id, trajectory.chain

    @property
    def reward(self) -> float | None:
        """The mean reward of its speakers; None if a score is missing."""
        scores = {trajectory.id: scored for trajectory, scored in self.conversations if scored}
        if len(scores) < len(self.conversations):
            return None
        return episode_reward([trajectory for trajectory, _ in self.conversations], scores)


@dataclass(frozen=True, slots=True)
class Filter:
    """A condition as typed on the command line: `Filter("--below 0.5", holds)`."""

    words: str
    holds: Callable[[Pair], bool]


@dataclass(frozen=True, slots=True)
class Conditions:
    """Conditions on episodes, all of which must hold: `Conditions(below=0.5, tool="search")`.

    Args:
        problem: of this problem, by its id
        chain: of this number in their group
        ending: that ended with max_turns, failed, ...
        below: with a reward below this
        above: with a reward above this
        tool: that called this tool
        error: in which a tool answered with an error
        text: with these words in what was read or sampled
    """

    problem: str | None = None
    chain: int | None = None
    ending: str | None = None
    below: float | None = None
    above: float | None = None
    tool: str | None = None
    error: bool = False
    text: str | None = None

    @property
    def names(self) -> list[str]:
        """Names of the conditions that are set: `["below", "tool"]`."""
        return [name for name, value in asdict(self).items() if value not in (None, False)]

    def filters(self, stored: Episodes) -> Iterator[Filter]:
        """A filter for each condition; raises ValueError for a problem or tool without episodes."""
        if self.problem is not None:
            yield of_problem(self.problem, stored)
        if self.chain is not None:
            yield of_chain(self.chain)
        if self.ending is not None:
            yield of_ending(self.ending)
        if self.below is not None:
            yield below(self.below)
        if self.above is not None:
            yield above(self.above)
        if self.tool is not None:
            yield called(self.tool, stored)
        if self.error:
            yield with_error()
        if self.text is not None:
            yield saying(self.text)


def of_problem(name: str, stored: Episodes) -> Filter:
    """Episodes of a problem; raises ValueError for an unknown one."""
    ids = sorted({trajectory.problem.id for trajectory, _ in stored.pairs})
    if name not in ids:
        raise ValueError(
            f"{stored.title} has no episode of the problem {name!r}.{did_you_mean(name, ids)}"
        )
    return Filter(f"--problem {name}", lambda pair: pair[0].problem.id == name)


def of_chain(number: int) -> Filter:
    """Episodes with this number within their group."""
    return Filter(f"--chain {number}", lambda pair: pair[0].chain == number)


def of_ending(name: str) -> Filter:
    """Episodes with an ending such as `max_turns`; raises ValueError for an unknown ending."""
    values = [ending.value for ending in Ending]
    if name not in values:
        raise ValueError(f"--ending: got {name!r}, expected one of {', '.join(values)}.")
    return Filter(f"--ending {name}", lambda pair: pair[0].ending.value == name)


def below(limit: float) -> Filter:
    """Scored episodes with a lower reward."""
    return Filter(f"--below {limit:g}", lambda pair: any(r < limit for r in _rewards(pair)))


def above(limit: float) -> Filter:
    """Scored episodes with a higher reward."""
    return Filter(f"--above {limit:g}", lambda pair: any(r > limit for r in _rewards(pair)))


def called(tool: str, stored: Episodes) -> Filter:
    """Episodes in which the model called a tool; raises ValueError for an unknown one."""
    tools = sorted(set().union(*(_tools(trajectory) for trajectory, _ in stored.pairs)))
    if tool not in tools:
        hint = did_you_mean(tool, tools)
        raise ValueError(f"No episode of {stored.title} called the tool {tool!r}.{hint}")
    return Filter(f"--tool {tool}", lambda pair: tool in _tools(pair[0]))


def with_error() -> Filter:
    """Episodes in which a tool returned an error."""
    return Filter("--error", lambda pair: any(seen.error for seen in pair[0].observations))


def saying(words: str) -> Filter:
    """Episodes with these words in any text, regardless of case."""
    wanted = words.casefold()
    return Filter(
        f"--text {words!r}", lambda pair: any(wanted in text.casefold() for text in texts(pair[0]))
    )


def matching(stored: Episodes, filters: Sequence[Filter]) -> list[StoredEpisode]:
    """The episodes with a conversation that passes all filters."""
    return [
        episode
        for episode in by_episode(stored.pairs)
        if any(all(each.holds(pair) for each in filters) for pair in episode.conversations)
    ]


def first(episodes: Sequence[StoredEpisode], order: SortOrder, count: int) -> list[StoredEpisode]:
    """The `count` episodes of lowest reward, unscored ones first, or of highest reward."""

    def rank(episode: StoredEpisode) -> tuple[bool, float]:
        reward = episode.reward or 0.0
        return (episode.reward is None) == (
            order == "best"
        ), reward if order == "worst" else -reward

    return sorted(episodes, key=rank)[:count]


def by_episode(pairs: Sequence[Pair]) -> list[StoredEpisode]:
    """Group conversations by episode, in the order of their first conversations."""
    episodes: defaultdict[int, list[Pair]] = defaultdict(list)
    for number, pair in zip(episode_numbers(t for t, _ in pairs), pairs, strict=True):
        episodes[number].append(pair)
    return [StoredEpisode(tuple(conversations)) for conversations in episodes.values()]


def _rewards(pair: Pair) -> list[float]:
    reward = reward_of(pair[1])
    return [] if reward is None else [reward]


def _tools(trajectory: Trajectory) -> set[str]:
    calls = [call for turn in trajectory.turns for call in turn.reply.calls]
    return {call.name for call in calls if isinstance(call, ToolCall)}
