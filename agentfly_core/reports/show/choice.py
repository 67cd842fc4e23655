"""Which of the stored episodes a person asked for."""

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
class Filter:
    """A condition on episodes as it was typed: `Filter("--below 0.5", holds)`."""

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
    """Episodes of one problem, by its id; raises ValueError for one that was not played."""
    ids = sorted({trajectory.problem.id for trajectory, _ in stored.pairs})
    if name not in ids:
        raise ValueError(
            f"{stored.title} has no episode of the problem {name!r}.{did_you_mean(name, ids)}"
        )
    return Filter(f"--problem {name}", lambda pair: pair[0].problem.id == name)


def of_chain(number: int) -> Filter:
    """The episode of this number within each problem's group."""
    return Filter(f"--chain {number}", lambda pair: pair[0].chain == number)


def of_ending(name: str) -> Filter:
    """Episodes that ended so: `terminal`, `max_turns`, ...; raises ValueError for no ending."""
    values = [ending.value for ending in Ending]
    if name not in values:
        raise ValueError(f"--ending: got {name!r}, expected one of {', '.join(values)}.")
    return Filter(f"--ending {name}", lambda pair: pair[0].ending.value == name)


def below(limit: float) -> Filter:
    """Episodes of a lower reward; one without a reward is neither below nor above."""

    def holds(pair: Pair) -> bool:
        reward = reward_of(pair[1])
        return reward is not None and reward < limit

    return Filter(f"--below {limit:g}", holds)


def above(limit: float) -> Filter:
    """Episodes of a higher reward."""

    def holds(pair: Pair) -> bool:
        reward = reward_of(pair[1])
        return reward is not None and reward > limit

    return Filter(f"--above {limit:g}", holds)


def called(tool: str, stored: Episodes) -> Filter:
    """Episodes in which the model called this tool; raises ValueError for one that none did."""

    def names(trajectory: Trajectory) -> set[str]:
        calls = [call for turn in trajectory.turns for call in turn.reply.calls]
        return {call.name for call in calls if isinstance(call, ToolCall)}

    def holds(pair: Pair) -> bool:
        return tool in names(pair[0])

    tools = sorted(set().union(*(names(trajectory) for trajectory, _ in stored.pairs)))
    if tool not in tools:
        hint = did_you_mean(tool, tools)
        raise ValueError(f"In no episode of {stored.title} the tool {tool!r} was called.{hint}")

    return Filter(f"--tool {tool}", holds)


def with_error() -> Filter:
    """Episodes in which a tool answered with an error."""
    return Filter("--error", lambda pair: any(seen.error for seen in pair[0].observations))


def saying(words: str) -> Filter:
    """Episodes with these words in any text of them, in capitals or not."""
    wanted = words.casefold()
    return Filter(
        f"--text {words!r}", lambda pair: any(wanted in text.casefold() for text in texts(pair[0]))
    )


def matching(stored: Episodes, filters: Sequence[Filter]) -> list[list[Pair]]:
    """The episodes with a conversation for which all filters hold, each with all conversations."""
    return [
        episode
        for episode in by_episode(stored.pairs)
        if any(all(each.holds(pair) for each in filters) for pair in episode)
    ]


def first(episodes: Sequence[list[Pair]], order: SortOrder, count: int) -> list[Pair]:
    """The conversations of `count` episodes of lowest reward, those without one before them, or of
    highest reward.
    """
    sign = 1.0 if order == "worst" else -1.0

    def rank(episode: Sequence[Pair]) -> tuple[bool, float]:
        reward = reward_of_episode(episode)
        return (reward is None) == (order == "best"), sign * (reward or 0.0)

    return [pair for episode in sorted(episodes, key=rank)[:count] for pair in episode]


def by_episode(pairs: Sequence[Pair]) -> list[list[Pair]]:
    """The conversations of each episode, in the order of their first ones."""
    episodes: defaultdict[int, list[Pair]] = defaultdict(list)
    for number, pair in zip(episode_numbers(t for t, _ in pairs), pairs, strict=True):
        episodes[number].append(pair)
    return list(episodes.values())


def reward_of_episode(episode: Sequence[Pair]) -> float | None:
    """The mean reward of its speakers; None if a score is missing."""
    scores = {trajectory.id: scored for trajectory, scored in episode if scored}
    if len(scores) < len(episode):
        return None
    return episode_reward([trajectory for trajectory, _ in episode], scores)


def with_text(episode: Sequence[Pair]) -> list[Pair]:
    """An episode's conversations with a reply or an error; all of them where there is neither."""
    return [pair for pair in episode if pair[0].turns or pair[0].error] or list(episode)
