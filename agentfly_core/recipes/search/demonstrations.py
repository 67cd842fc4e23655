"""Demonstrations for `recipes.search`. Right answers are read from search results, never from
`Problem.facts`.
"""

import random
import re
from collections.abc import Mapping, Sequence

from agentfly_core import Conversation, Problem, call_text
from agentfly_core.datasets.players import Demonstrator, another, filled, mistake, observed
from agentfly_core.recipes.search.dataset import COUNTRIES, PROFESSIONS, QUESTIONS

MISTAKES = ("guess", "stop early", "misread")
WORDS = {"country": COUNTRIES, "profession": PROFESSIONS}
"""The words from which wrong guesses are drawn, by kind of question. Guessed years are random."""
STATED: Mapping[str, str] = {
    "founder": r"founded by (\w+ \w+)",
    "author": r"written by (\w+ \w+)",
    "country": r"born in (\w+)",
    "year": r"in (\d{4})",
    "profession": r"^A (\w+), born",
}
"""For each kind of fact, the pattern that finds the fact in a page's text."""
MISREAD = {"country": "year", "year": "profession", "profession": "country"}
UNKNOWN = "unknown"


def search(problems: Sequence[Problem], seed: int, spoilt: float = 0.3) -> Demonstrator:
    """Return a policy that answers after two searches.

    The first search finds the page of the company or book in the question. This page names a
    person, and the second search finds the person's page. In a share `spoilt` of the episodes, the
    policy makes a mistake: it guesses, or answers with the person's name or a wrong fact of the
    person's page.
    """

    async def policy(conversation: Conversation) -> str:
        wrong = mistake(conversation, seed, spoilt, MISTAKES)
        kind, fields = filled(conversation.problem.prompt, QUESTIONS, "recipes.search")
        role, value = fields["role"], fields["title"]
        if role not in STATED:
            raise ValueError(f"The question names the role {role!r}, expected founder or author.")
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


def read(observation: str, title: str, what: str) -> str:
    """Return a fact from search results, or "" if the fact is missing.

    `title` is the title of the page with the fact. `what` is the kind of the fact, such as
    "country".
    """
    page = re.search(rf"^\[\w+\] {re.escape(title)}: (.*)$", observation, re.MULTILINE)
    match = page and re.search(STATED[what], page[1])
    return match[1] if match else ""
