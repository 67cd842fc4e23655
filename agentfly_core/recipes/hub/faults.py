"""Faults of model calls and their remedies: retry, rule fix, model fix, giving up."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from agentfly_core import Message

RETRY, RULE_FIX, ASK_MODEL, GIVE_UP = "hub/retry", "hub/rule_fix", "hub/ask_model", "hub/give_up"
"""The remedies, as names of counts."""


class HubFault(Exception):
    """A fault of a model call."""


class AccessFault(HubFault):
    """The model cannot be reached now."""


class RequestFault(HubFault):
    """The model refuses the request."""


class ReplyFault(HubFault):
    """A reply cannot be read."""


class CutReply(ReplyFault):
    """A token limit ended the reply, so its end is unknown."""


class NoJson(ReplyFault):
    """There is no JSON object in a reply."""


class BrokenJson(ReplyFault):
    """A reply has an object that no single mark repairs, or that several ways repair."""


class WrongFields(ReplyFault):
    """An object lacks a field, or has others."""


class WrongType(ReplyFault):
    """A field of an object has a value of another type."""


class AmbiguousReply(ReplyFault):
    """A reply has several objects that fit."""


class MissingMark(ReplyFault):
    """A reply lacks marks such as `<say>`, or has them in another order."""


REMEDIES = {AccessFault: RETRY, ReplyFault: ASK_MODEL}


class ReplyParser(Protocol):
    """Reads the fields of a reply."""

    def read(self, text: str) -> tuple[Mapping[str, Any], bool]:
        """The fields of a reply, and whether a rule was needed; raises ReplyFault.

        A rule must not change the meaning.
        """


@dataclass
class Faults:
    """Treats the faults of an agent's model calls, and counts each remedy.

    A model that cannot be reached is called again up to `retries` times, every `interval` seconds.
    The parser repairs replies. For a reply beyond repair the model is asked up to `questions`
    times. Other faults are raised.
    """

    counts: Counter[str] = field(default_factory=Counter)
    retries: int = 3
    interval: float = 1.0
    questions: int = 1
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def fields(
        self, ask: Callable[[str], Awaitable[Message]], parser: ReplyParser
    ) -> Mapping[str, Any]:
        """The fields of the first reply without a fault.

        `ask` is called again after faults that have a remedy. It gets the fault of the last reply,
        and "" the first time. Raises HubFault.
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
