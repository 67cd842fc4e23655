"""Print episodes of one policy, or of two policies side by side. An episode is shown with its
rewards, its ending, and the text that the model read and sampled.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from agentfly_core.records.trajectory import Message, Unscored
from agentfly_core.reports.show.choice import SortOrder, StoredEpisode, by_episode
from agentfly_core.runs.episodes import KINDS, Episodes, Pair, Piece, spans
from agentfly_core.system.formats.text import counted

SAME = "(begins as above)"
NARROW = 120
"""If a terminal has fewer columns, two episodes are shown below each other, not side by side."""


def show(stored: Episodes, matching: int, chosen: Sequence[StoredEpisode]) -> RenderableType:
    """Show the chosen episodes below a summary.

    `matching` is the number of episodes that meet the user's conditions. A beginning that all
    chosen conversations have in common is shown only once.
    """
    conversations: list[Pair] = []
    for episode in chosen:  # skip empty conversations, unless all are empty
        with_text = [pair for pair in episode.conversations if pair[0].turns or pair[0].error]
        conversations += with_text or episode.conversations
    shared = shared_beginning(stored, conversations)
    once: list[RenderableType] = []
    if shared:
        once = [Text("all of them begin with", "bold"), Piece("read", shared)]
    episodes = []
    for pair in conversations:
        pieces = stored.pieces(pair[0])
        if shared:
            pieces[0] = Piece("read", f"{SAME}\n{pieces[0].text[len(shared) :]}")
        episodes.append(Group("", facts(stored, pair), *pieces))
    return Group(heading(stored, matching), legend(), *once, *episodes)


def heading(stored: Episodes, matching: int) -> Text:
    """Return a line with the title, the number of episodes and their mean reward.

    `matching` is the number of episodes that meet the user's conditions. If some episodes do not
    meet the conditions, the line also shows `matching`.
    """
    episodes = by_episode(stored.pairs)
    rewards = [episode.reward for episode in episodes if episode.reward is not None]
    overall = f"{len(rewards) or 'none'} scored"
    if rewards:
        overall += f", mean reward {sum(rewards) / len(rewards):.3f}"
    overall += f", {matching} matching" if matching < len(episodes) else ""
    return Text(f"{stored.title}: {counted(len(episodes), 'episode')}, {overall}", "bold")


def legend() -> Text:
    """Return a line that explains the characters at the beginning of printed lines."""
    return Text.assemble(
        ("| read by the model", KINDS["read"][1]), "   ", ("> sampled by it", KINDS["sampled"][1])
    )


def facts(stored: Episodes, pair: Pair) -> RenderableType:
    """Return a line with the problem, the speaker, the reward and the ending of a conversation.

    If the conversation ended with an error, a second line shows the error.
    """
    trajectory, scored = pair
    several = len({trajectory.agent for trajectory, _ in stored.pairs}) > 1
    if scored is None:
        graded = "not scored"
    elif isinstance(scored.reward, Unscored):
        graded = f"unscored ({scored.reward.reason})"
    else:
        parts = ", ".join(f"{name} {value:g}" for name, value in scored.rewards.items())
        graded = f"reward {scored.reward:g} ({parts})"
    versions = {span.policy_version for turn in trajectory.turns for span in turn.sampled}
    # -1 means that a script sampled it, see Scripted
    policies = "a script" if versions == {-1} else f"policy {spans(sorted(versions)) or 'none'}"
    speaks = f"{trajectory.policy}, frozen" if trajectory.policy else policies
    details = [
        f"problem {trajectory.problem.id}, chain {trajectory.chain}",
        *([trajectory.agent] if several else []),
        graded,
        f"ended {trajectory.ending.value}",
        f"{counted(trajectory.sampled_tokens, 'sampled token')} of {speaks}",
    ]
    error = [Text(f"  error: {trajectory.error}", "red")] if trajectory.error else []
    return Group(Text("; ".join(details), "bold"), *error)


def shared_beginning(stored: Episodes, chosen: Sequence[Pair]) -> str:
    """Return the first lines that all chosen conversations have in common.

    The result is empty if there is only one conversation, or if these lines do not contain the
    whole system prompt.
    """
    begun = [trajectory for trajectory, _ in chosen if trajectory.turns]
    opening = [item for trajectory in begun for item in trajectory.turns[0].read[:1]]
    system = {m.content for m in opening if isinstance(m, Message) and m.role == "system"}
    if len(chosen) < 2 or len(begun) < len(chosen) or len(system) != 1:
        return ""
    texts = (stored.pieces(trajectory)[0].text.splitlines(keepends=True) for trajectory in begun)
    same = takewhile(lambda lines: len({*lines}) == 1, zip(*texts, strict=False))
    shared = "".join(lines[0] for lines in same)
    return shared if system.pop() in shared else ""


@dataclass(frozen=True, slots=True)
class Twice:
    """Two episodes of a problem with the same `chain` (index), played by two policies."""

    shown: StoredEpisode
    against: StoredEpisode

    @property
    def change(self) -> float | None:
        """The reward of `shown` (first policy) minus the reward of `against` (second policy).

        The value is None if a reward is missing.
        """
        here, there = self.shown.reward, self.against.reward
        return None if here is None or there is None else here - there

    @property
    def conversations(self) -> list[tuple[Pair, Pair]]:
        """Pairs of conversations of the same speaker: first from `shown`, then from `against`.

        Only speakers of both episodes have a pair. A speaker is left out if both conversations are
        empty. If the conversations of all speakers are empty, all speakers are included.
        """
        against = {pair[0].agent: pair for pair in self.against.conversations}
        both = [
            (pair, against[pair[0].agent])
            for pair in self.shown.conversations
            if pair[0].agent in against
        ]
        return [two for two in both if any(t.turns or t.error for t, _ in two)] or both


def played_twice(shown: Sequence[StoredEpisode], against: Episodes, of: str) -> list[Twice]:
    """Pair episodes of two policies. Both episodes of a pair have the same problem and index.

    `of` is the title of the first policy's episodes. Raises ValueError if `shown` has episodes, but
    none of them can be paired.
    """
    there = {episode.place: episode for episode in by_episode(against.pairs)}
    matched = [Twice(one, there[one.place]) for one in shown if one.place in there]
    if shown and not matched:
        raise ValueError(
            f"{of} and {against.title} share no problem: each training step plays different "
            "problems. Compare evaluations instead: --evaluation validation, or --evaluation test."
        )
    return matched


def most_changed(played: Sequence[Twice], order: SortOrder, count: int) -> list[Twice]:
    """Return the `count` pairs of episodes with the largest changes of reward (`Twice.change`).

    The order "worst" selects the largest decreases, and "best" the largest increases. Pairs with an
    unscored episode come last.
    """
    sign = 1.0 if order == "worst" else -1.0
    ranked = sorted(played, key=lambda twice: (twice.change is None, sign * (twice.change or 0.0)))
    return ranked[:count]


def show_both(
    shown: Episodes,
    against: Episodes,
    episodes: Sequence[Twice],
    matching: int,
    chosen: Sequence[Twice],
) -> RenderableType:
    """Show the chosen episodes of two policies below a summary.

    `episodes` has all pairs of episodes with the same problem and index. `matching` is the number
    of the first policy's episodes that meet the user's conditions.
    """
    changes = [twice.change or 0.0 for twice in episodes]
    fell, rose = sum(change < 0 for change in changes), sum(change > 0 for change in changes)
    both = counted(len(episodes), "episode")
    return Group(
        heading(against, len(against.pairs)),
        heading(shown, matching),
        Text(f"{both} of the same problems; the reward fell in {fell}, rose in {rose}", "bold"),
        legend(),
        *(_Columns(shown, against, twice) for twice in chosen),
    )


@dataclass(frozen=True, slots=True)
class _Columns:
    """Two episodes in two columns. On a narrow terminal, they are below each other."""

    shown: Episodes
    against: Episodes
    twice: Twice

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        change = self.twice.change
        label = "no reward" if change is None else f"reward {change:+g}" if change else "equal"
        yield Rule(Text(f"{self.twice.shown.place[0]}, {label}"), align="left")
        for shown, against in self.twice.conversations:
            before, after = _whole(self.against, against), _whole(self.shown, shown)
            if options.max_width < NARROW:
                yield Group(before, "", after)
                continue
            columns = Table.grid(padding=(0, 1), expand=True)
            columns.add_column(ratio=1)
            columns.add_column(ratio=1)
            columns.add_row(before, after)
            yield columns


def _whole(stored: Episodes, pair: Pair) -> RenderableType:
    return Group(Text(stored.title, "bold"), facts(stored, pair), *stored.pieces(pair[0]))
