"""Faults of model calls and their remedies: retry, repair by rules, ask the model, give up."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from agentfly_core import Message

RETRY, RULE_FIX, ASK_MODEL, GIVE_UP = "hub/retry", "hub/rule_fix", "hub/ask_model", "hub/give_up"
"""The remedies. Their names are also the names of their counts in metrics."""


class HubFault(Exception):
    """A failed model call, or a reply that cannot be used."""


class AccessFault(HubFault):
    """The model cannot be reached now."""


class RequestFault(HubFault):
    """The model refuses the request."""


class ReplyFault(HubFault):
    """A reply cannot be read."""


class CutReply(ReplyFault):
    """A token limit ended the reply, so its end is unknown."""


class NoJson(ReplyFault):
    """A reply contains no JSON object."""


class BrokenJson(ReplyFault):
    """A reply has an invalid JSON object that adding or removing one mark does not repair."""


class WrongFields(ReplyFault):
    """A JSON object lacks a field, or has unexpected fields."""


class WrongType(ReplyFault):
    """A field of a JSON object has a value of a wrong type."""


class AmbiguousReply(ReplyFault):
    """A reply has several objects with the expected fields, or several repairs are possible."""


class MissingMark(ReplyFault):
    """A reply lacks marks such as `<say>`, or has them in a wrong order."""


REMEDIES = {AccessFault: RETRY, ReplyFault: ASK_MODEL}


class ReplyParser(Protocol):
    """A parser of replies."""

    def read(self, text: str) -> tuple[Mapping[str, Any], bool]:
        """Return the fields of a reply, and whether a repair rule was needed.

        A rule must not change the reply's meaning. Raises ReplyFault.
        """


@dataclass
class Faults:
    """Treats the faults of an agent's model calls, and counts each remedy.

    If the model cannot be reached, it is called again up to `retries` times, after `interval`
    seconds each. The parser repairs small mistakes in replies. If it cannot, the model is asked for
    another reply, up to `questions` times. Other faults are raised.
    """

    counts: Counter[str] = field(default_factory=Counter)
    retries: int = 3
    interval: float = 1.0
    questions: int = 1
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def fields(
        self, ask: Callable[[str], Awaitable[Message]], parser: ReplyParser
    ) -> Mapping[str, Any]:
        """Call the model by `ask` until a reply can be read, and return the reply's fields.

        The argument of `ask` is the text of the last reply's fault, and "" before the first fault.
        Raises HubFault for a fault without a remedy, or after all retries.
        """
        fault, left = "", Counter({RETRY: self.retries, ASK_MODEL: self.questions})
        while True:
            try:
                return self._read(await ask(fault), parser)
            except HubFault as error:
                remedy = next((r for kind, r in REMEDIES.items() if isinstance(error, kind)), "")
                if not left[remedy]:
                    self.counts[GIVE_UP] += 1
                    raise
                fault = str(error) if remedy == ASK_MODEL else fault
            left[remedy] -= 1
            self.counts[remedy] += 1
            if remedy == RETRY:
                await self.sleep(self.interval)

    def _read(self, reply: Message, parser: ReplyParser) -> Mapping[str, Any]:
        if reply.cut:
            raise CutReply("the reply is too long")
        fields, repaired = parser.read(reply.content)
        self.counts.update([RULE_FIX] * repaired)
        return fields
