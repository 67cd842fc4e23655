"""Demonstrations for `datasets.encyclopaedia`, by the question and search results only."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.datasets.demonstrations import Demonstrator
from agentfly_core.datasets.encyclopaedia import COUNTRIES, PROFESSIONS, QUESTIONS, ROLES
from agentfly_core.datasets.mistakes import another, mistake, observed
from agentfly_core.records.messages import call_text
from agentfly_core.records.trajectory import Problem

MISTAKES = ("guess", "stop early", "misread")
WORDS = {"country": COUNTRIES, "profession": PROFESSIONS}
"""What a guess may be, where it is no number."""
STATED: Mapping[str, str] = {
    "founder": r"founded by (\w+ \w+)",
    "author": r"written by (\w+ \w+)",
    "country": r"born in (\w+)",
    "year": r"in (\d{4})",
    "profession": r"^A (\w+), born",
}
"""Where a page's text states what is looked for."""
MISREAD = {"country": "year", "year": "profession", "profession": "country"}
UNKNOWN = "unknown"


def search(problems: Sequence[Problem], seed: int, spoilt: float = 0.3) -> Demonstrator:
    """Search the subject of the question, then the person on its page; then answer.

    A share `spoilt` guesses, or answers with the person's name or another fact of the page.
    """

    async def policy(conversation: Conversation) -> str:
        wrong = mistake(conversation, seed, spoilt, MISTAKES)
        kind, role, value = understood(conversation.problem.prompt)
        wanted = [role, MISREAD[kind] if wrong == "misread" else kind]
        plan = {"guess": [], "stop early": wanted[:1]}.get(wrong, wanted)
        observations = observed(conversation)
        for what, observation in zip(plan, observations, strict=False):
            value = read(observation, value, what)
        if value and len(observations) < len(plan):
            return call_text("search", query=value)
        if wrong == "guess":
            right = str(conversation.problem.facts["answer"])
            value = another(random.Random(conversation.seed), right, WORDS.get(kind, ()))
        return call_text("answer", answer=value or UNKNOWN)

    return policy


def understood(prompt: str) -> tuple[str, str, str]:
    """The parts of a question: `("country", "founder", "Amber Mills")`; raises ValueError."""
    for kind, text in QUESTIONS.items():
        pattern = re.escape(text.format(role="ROLE", title="TITLE"))
        pattern = pattern.replace("ROLE", f"({'|'.join(ROLES)})").replace("TITLE", r"(\w+ \w+)")
        if match := re.fullmatch(pattern, prompt):
            return kind, match[1], match[2]
    raise ValueError(f"Got {prompt!r}, expected a question of datasets.encyclopaedia.")


def read(observation: str, title: str, what: str) -> str:
    """What the page of this title states, "" where no result does."""
    page = re.search(rf"^\[\w+\] {re.escape(title)}: (.*)$", observation, re.MULTILINE)
    match = page and re.search(STATED[what], page[1])
    return match[1] if match else ""
