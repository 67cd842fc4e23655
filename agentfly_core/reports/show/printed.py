"""Episodes on a terminal: how each ended, what the model read and what it chose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from agentfly_core.records.speakers import activity
from agentfly_core.records.trajectory import Message, Unscored
from agentfly_core.reports.show.choice import Filter, by_episode, reward_of_episode, with_text
from agentfly_core.runs.episodes import STYLES, Episodes, Pair, Piece, spans
from agentfly_core.system.formats.text import counted

LEASES = {
    "most_in_use": "in use",
    "most_waiting": "waiting",
    "wait_p50": "p50 s",
    "wait_p95": "p95 s",
    "started": "started",
    "closed": "closed",
    "resets_failed": "bad resets",
    "expired": "expired",
}
SAME = "(the beginning that all have, as above)"


def show(
    stored: Episodes, matching: int, filters: Sequence[Filter], chosen: Sequence[Pair]
) -> RenderableType:
    """The chosen episodes below a line about all; `matching` is how many the filters leave."""
    chosen = [pair for episode in by_episode(chosen) for pair in with_text(episode)]
    shared = shared_beginning(stored, chosen)
    once: list[RenderableType] = []
    if shared:
        once = [Text("all of them begin with", "bold"), Piece("read", shared)]
    episodes = []
    for pair in chosen:
        pieces = stored.pieces(pair[0])
        if shared:
            pieces[0] = Piece("read", f"{SAME}\n{pieces[0].text[len(shared) :]}")
        episodes.append(Group("", facts(stored, pair), *pieces))
    return Group(
        heading(stored),
        *counts(stored, matching, filters),
        *environments(stored.metrics),
        *speakers(stored),
        legend(),
        *once,
        *episodes,
    )


def heading(stored: Episodes) -> Text:
    """A title, how many episodes there are and the mean of what their speakers earned."""
    episodes = by_episode(stored.pairs)
    rewards = [r for episode in episodes if (r := reward_of_episode(episode)) is not None]
    overall = f"{len(rewards) or 'none'} scored"
    if rewards:
        overall += f", mean reward {sum(rewards) / len(rewards):.3f}"
    return Text(f"{stored.title}: {counted(len(episodes), 'episode')}, {overall}", "bold")


def counts(stored: Episodes, matching: int, filters: Sequence[Filter]) -> list[RenderableType]:
    """How many episodes of how many the filters leave; nothing without a filter."""
    total = len(by_episode(stored.pairs))
    typed = " ".join(each.words for each in filters)
    match = "matches" if matching == 1 else "match"
    return [Text(f"{matching} of {total} {match} {typed}", "bold")] if filters else []


def legend() -> Text:
    """What the marks of lines mean."""
    return Text.assemble(
        ("| read by the model", STYLES["read"]),
        "   ",
        ("> sampled: chosen by it", STYLES["sampled"]),
    )


def environments(metrics: Mapping[str, float]) -> list[RenderableType]:
    """What the step's worst shard asked of its environments, one row a kind; nothing where it used
    none.
    """
    kinds = sorted({name.split("/")[1] for name in metrics if name.startswith("resources/")})
    shown = Table(
        "environment",
        *(Column(title, justify="right") for title in LEASES.values()),
        box=None,
        pad_edge=False,
        collapse_padding=True,
        header_style="cyan",
    )
    for kind in kinds:
        shown.add_row(
            kind,
            *(f"{round(metrics.get(f'resources/{kind}/{name}', 0.0), 2):g}" for name in LEASES),
        )
    return [shown] if kinds else []


def speakers(stored: Episodes) -> list[RenderableType]:
    """What each speaker did in an episode, on average; nothing where one alone spoke."""
    did = activity([trajectory for trajectory, _ in stored.pairs])
    titles = ("replies", "sampled tokens", "tool calls")
    shown = Table(
        "speaker, by episode",
        *(Column(title, justify="right") for title in titles),
        box=None,
        pad_edge=False,
        header_style="cyan",
    )
    for name, figures in did.items():
        shown.add_row(name, *(f"{average:.1f}" for average in figures.values()))
    return [shown] if len(did) > 1 else []


def facts(stored: Episodes, pair: Pair) -> RenderableType:
    """A line about an episode: its problem, who spoke where several did, its reward and ending; and
    a line for its error, if any.
    """
    trajectory, scored = pair
    several = len({one.agent for one, _ in stored.pairs}) > 1
    if scored is None:
        graded = "not scored"
    elif isinstance(scored.reward, Unscored):
        graded = f"unscored ({scored.reward.reason})"
    else:
        parts = ", ".join(f"{name} {value:g}" for name, value in scored.rewards.items())
        graded = f"reward {scored.reward:g} ({parts})"
    versions = {span.policy_version for turn in trajectory.turns for span in turn.sampled}
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
    """The text before the problem, such as a system prompt, where two or more episodes begin with
    the same one; empty otherwise.
    """
    beginnings = set()
    for trajectory, _ in chosen:
        if not trajectory.turns:
            return ""
        messages = [item for item in trajectory.turns[0].read if isinstance(item, Message)]
        text = stored.pieces(trajectory)[0].text
        system = [
            item.content for item in messages if item.role == "system" and item.content in text
        ]
        end = text.find(system[0]) + len(system[0]) if system else 0
        first = next((item.content for item in messages if item.role == "user"), "")
        if not first or (begin := text.find(first, end)) < 0:
            return ""
        line = text[:begin].rstrip("\n").rfind("\n") + 1  # in which the user's message begins
        beginnings.add(text[: max(end, line)])
    return beginnings.pop() if len(chosen) > 1 and len(beginnings) == 1 else ""
