"""Handle faults of model calls: repeat the call, repair the reply by rules, prompt the model for a
new reply, or give up.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from agentfly_core import Message

RETRY, RULE_FIX, ASK_MODEL, GIVE_UP = "hub/retry", "hub/rule_fix", "hub/ask_model", "hub/give_up"
"""The remedies for faults. Each value is also the name of a metric, which counts the remedy."""


class HubFault(Exception):
    """A failed model call, or a reply that cannot be used."""


class AccessFault(HubFault):
    """The model cannot be reached at the moment. `Faults` repeats the call a few times."""


class RequestFault(HubFault):
    """The model refuses the request. The call is not repeated."""


class ReplyFault(HubFault):
    """A reply cannot be read."""


class CutReply(ReplyFault):
    """A token limit ended the reply, so the reply is incomplete."""


class NoJson(ReplyFault):
    """A reply contains no JSON object."""


class BrokenJson(ReplyFault):
    """A reply has an invalid JSON object that the parser cannot repair."""


class WrongFields(ReplyFault):
    """A JSON object lacks a field, or has unexpected fields."""


class WrongType(ReplyFault):
    """A field of a JSON object has a value of a wrong type."""


class AmbiguousReply(ReplyFault):
    """A reply can be read in several ways.

    It contains several objects with the expected fields, or it is invalid and can be repaired with
    different results.
    """


class MissingMark(ReplyFault):
    """A reply lacks a delimiter such as `<say>`, or has delimiters in a wrong order."""


REMEDIES = {AccessFault: RETRY, ReplyFault: ASK_MODEL}


class ReplyParser(Protocol):
    """Reads the fields of a model's reply, and repairs small mistakes in the reply."""

    def read(self, text: str) -> tuple[Mapping[str, Any], bool]:
        """Return the fields of a reply, and whether the reply had to be repaired.

        Implementations may only make repairs that keep the meaning of the reply. Raises ReplyFault
        if the reply cannot be read, even with a repair.
        """


@dataclass
class Faults:
    """Handles faults of an agent's model calls.

    - If the model cannot be reached, the call is repeated after `interval` seconds, at most
      `retries` times.
    - The parser repairs small mistakes in a reply. If it cannot repair the reply, the model is
      prompted for a new reply, at most `questions` times.
    - All other faults are raised. A fault is also raised if no retry or new prompt is left.

    `counts` has the numbers of retries, repairs, new prompts and raised faults.
    """

    counts: Counter[str] = field(default_factory=Counter)
    retries: int = 3
    interval: float = 1.0
    questions: int = 1
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def fields(
        self, ask: Callable[[str], Awaitable[Message]], parser: ReplyParser
    ) -> Mapping[str, Any]:
        """Call the model with `ask` until a reply can be read, and return the reply's fields.

        The argument of `ask` is the reason why the last reply could not be read. Before any reply,
        it is "".

        Raises HubFault if REMEDIES contains no remedy for the fault, or if the remedy (a retry or a
        new prompt) was already used the maximum number of times.
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
