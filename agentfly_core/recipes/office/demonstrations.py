"""Demonstrations for `recipes.office`: policies that look up the answer with tools."""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agentfly_core import Conversation, Problem, call_text
from agentfly_core.datasets.names import companies, people
from agentfly_core.datasets.players import Demonstrator, another, filled, mistake, observed
from agentfly_core.recipes.office.dataset import CITIES, KINDS, QUESTIONS

MISTAKES = ("guess", "stop early", "misread")
NAMES = {"buyer": people()["train"], "company": companies()["train"], "city": CITIES}
"""Values that a policy may guess for answers that are not numbers."""
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Lookup:
    """A planned call of a tool: `Lookup("find", "orders", "number", takes="person")`.

    In this example, the policy calls the tool `find` for the rows of the table `orders` in which
    the column `number` equals a given value. This value comes from the question or from the
    previous lookup. The policy then reads `person` in the first row. If `takes` is empty, the
    policy reads the whole result.
    """

    tool: str
    table: str
    column: str
    takes: str = ""

    def call(self, value: str) -> str:
        where = {"table": self.table} if self.tool != "total" else {}
        wanted = int(value) if value.isdigit() else value
        return call_text(self.tool, **where, column=self.column, value=wanted)

    def taken(self, observation: str) -> str:
        """Return the value that the policy reads in a tool's result.

        If the result contains no row, return "".
        """
        if not self.takes:
            return observation
        try:
            return str(json.loads(observation)[0][self.takes])
        except (ValueError, LookupError, TypeError):  # the text of an error, or no row
            return ""


PLANS: Mapping[str, Sequence[Lookup]] = {
    kind: [Lookup(*words) for words in one["lookups"]] for kind, one in QUESTIONS.items()
}
QUERIES = {kind: one["query"] for kind, one in QUESTIONS.items()}


def office(problems: Sequence[Problem], seed: int, spoilt: float = 0.3) -> Demonstrator:
    """Return a policy that looks up one value after another with tools, and then answers.

    In a share `spoilt` of the episodes, the policy errs: it guesses, stops too early, or
    misreads the last result.
    """

    async def policy(conversation: Conversation) -> str:
        wrong = mistake(conversation, seed, spoilt, MISTAKES)
        kind, value = understood(conversation.problem.prompt)
        plan = {"guess": (), "stop early": PLANS[kind][:-1]}.get(wrong, PLANS[kind])
        observations = observed(conversation)
        for lookup, observation in zip(plan, observations, strict=False):
            value = lookup.taken(observation)
        if value and len(observations) < len(plan):
            return plan[len(observations)].call(value)
        return call_text("answer", answer=_answer(conversation, kind, value or UNKNOWN, wrong))

    return policy


def sql(problems: Sequence[Problem], seed: int, spoilt: float = 0.3) -> Demonstrator:
    """Return a policy that runs one SQL query with the tool `sql`, and then answers.

    In a share `spoilt` of the episodes, the policy errs: it guesses or misreads the answer.
    """

    async def policy(conversation: Conversation) -> str:
        kind, value = understood(conversation.problem.prompt)
        wrong = mistake(conversation, seed, spoilt, ("guess", "misread"))
        observations = observed(conversation)
        if not observations and wrong != "guess":
            return call_text("sql", statement=QUERIES[kind].format(value))
        last = observations[-1].splitlines()[-1] if observations else ""
        return call_text("answer", answer=_answer(conversation, kind, last, wrong))

    return policy


def understood(prompt: str) -> tuple[str, str]:
    """Parse a question. Return its kind, and the order or person in it.

    Raises ValueError if the prompt matches none of the question templates in KINDS.
    """
    kind, fields = filled(
        prompt, {kind: text for kind, (text, _) in KINDS.items()}, "recipes.office"
    )
    [value] = fields.values()
    return kind, value


def _answer(conversation: Conversation, kind: str, value: str, wrong: str) -> str:
    right = str(conversation.problem.facts["answer"])
    # after stopping early, the last value may be the right answer by chance
    if wrong in ("guess", "misread") or (wrong == "stop early" and value == right):
        return another(random.Random(conversation.seed), right, NAMES.get(kind, ()))
    return value
