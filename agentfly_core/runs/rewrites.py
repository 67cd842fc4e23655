"""Rewrites of a conversation's history by agents, counted in the record."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal

from agentfly_core.records.messages import client_text, echo_key
from agentfly_core.records.trajectory import Message, Trajectory, Turn

Cause = Literal["text", "calls", "earlier"]
"""A reply has another text or other calls, or only messages or tools before a reply differ."""
CAUSES: tuple[Cause, ...] = ("text", "calls", "earlier")


def history_rewrites(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """The shares of turns that open a context with an own reply in a changed history, by cause.

    Replies of the model that agents put into their first prompt are examples and do not count.
    """
    causes = Counter(cause for one in trajectories for cause in _causes(one))
    turns = max(1, sum(len(one.turns) for one in trajectories))
    by_cause = {f"history_rewrites/{cause}": causes[cause] / turns for cause in CAUSES}
    return {"history_rewrites": causes.total() / turns, **by_cause}


def _causes(trajectory: Trajectory) -> Iterator[Cause]:
    turns = trajectory.turns
    examples = {echo_key(message) for turn in turns[:1] for message in _own_messages(turn)}
    replies = {echo_key(turn.reply): turn.reply for turn in turns}
    for turn in turns[1:]:
        echoes = {echo_key(message): message for message in _own_messages(turn)}
        foreign = [echoes[key] for key in echoes if key not in examples | replies.keys()]
        if foreign:
            text = client_text(foreign[0]).strip()
            yield "calls" if text in map(_text, replies.values()) else "text"
        elif echoes.keys() - examples:
            yield "earlier"


def _own_messages(turn: Turn) -> list[Message]:
    """The assistant's messages that a turn reads, which no earlier reply begins."""
    return [one for one in turn.read if isinstance(one, Message) and one.role == "assistant"]


def _text(reply: Message) -> str:
    return client_text(reply).strip()
