"""Demonstrations by a scripted planner, rewriter and observer, accepted when they are right."""

import hashlib
import random
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from agentfly_core import Conversation, Problem, call_text
from agentfly_core.datasets.players import Demonstrator, observed
from agentfly_core.recipes.mask_search.ramp import MASK
from agentfly_core.recipes.mask_search.rewards import written
from agentfly_core.tools import search as pages_search

MISTAKES = ("plan", "rewrite", "observe")
UNKNOWN = "unknown"
MOST_QUERIES = 3
PageSearch = Callable[[str, int, Problem], str]
ATTEMPTS = 50
"""A search: query, page and problem."""
_QUERY = re.compile(r'"query": "(.*?)"')
_NAME = r"[^\W\d_a-z]\w*(?: [^\W\d_a-z]\w*)*|\d[\d.,]*"
_SAYS_THE_REVERSE = {
    "founded by": "founder of",
    "written by": "author of",
    "founder of": "founded by",
    "author of": "written by",
}
_QUESTION = re.compile(
    rf"(?:In|Of) which (?P<kind>\w+) is the \w+ of (?P<title>{_NAME}) |"
    rf"In which (?P<born>\w+) was the \w+ of (?P<other>{_NAME}) "
)
_CUES = {"country": "born in", "town": "living in", "book": "author of", "company": "founder of"}


class Gaps(NamedTuple):
    """What is to be found: `Gaps("Amber Mills", ("founded by", "living in"))`."""

    subject: str
    cues: Sequence[str]


def planned(prompt: str) -> Gaps:
    """The planner: the page that a prompt is about, and the words before each gap."""
    if match := _QUESTION.match(prompt):
        return Gaps(match["title"] or match["other"], [_CUES[match["kind"] or match["born"]]])
    title, _, text = prompt.removeprefix("Fill in: ").partition(": ")
    before = [part.rpartition(", ")[2] for part in text.split(MASK)[:-1]]
    return Gaps(title, [" ".join(words.split()).lower() for words in before])


def rewritten(plan: Gaps, queries: int) -> dict[str, str | int]:
    """The rewriter: a search of the subject, then of the further results."""
    return {"query": plan.subject, **({"page": queries + 1} if queries else {})}


def read(plan: Gaps, observations: Sequence[str]) -> list[str]:
    """The observer: the fact that search results state for each gap, or ""."""
    pages = [
        page for one in observations for page in re.findall(r"^\[\S+\] (.+?): (.*)$", one, re.M)
    ]
    about = [page for page in pages if plan.subject in page[0] or plan.subject in page[1]]
    return [next(_stated(plan.subject, cue, about), "") for cue in plan.cues]


def _stated(subject: str, cue: str, pages: Sequence[tuple[str, str]]) -> Iterator[str]:
    for title, text in pages:
        if match := re.search(rf"\b(?i:{re.escape(cue)}) ({_NAME})", text):
            yield match[1]
        elif re.search(rf"\b(?i:{_SAYS_THE_REVERSE.get(cue, cue)}) {re.escape(subject)}\b", text):
            yield title


def reply(prompt: str, observations: Sequence[str], mistake: str = "") -> str:
    """The team's next call; a planner, rewriter or observer may make a mistake."""
    plan = planned(prompt)
    if mistake == "plan":
        plan = plan._replace(subject=plan.subject.split()[-1])
    fills = read(plan, observations)
    if not all(fills) and len(observations) < MOST_QUERIES:
        search = rewritten(plan, len(observations))
        if mistake == "rewrite" and not observations:
            search["query"] = plan.subject.split()[0]
        return call_text("search", **search)
    if mistake == "observe":
        fills = [plan.subject, *fills[1:]]
    return call_text("answer", answer=written([fill or UNKNOWN for fill in fills]))


def team(
    problems: Sequence[Problem], seed: int, spoilt: float = 0.0, corpus: str = "", results: int = 2
) -> Demonstrator:
    """Search until each gap is filled, then answer.

    In a share `spoilt` of the attempts the planner takes another subject, the rewriter loses words
    or the observer takes another fact. An attempt with a mistake is shown only if its fills are
    right. Attempts search the file `corpus`.
    """
    search = _search(corpus, results) if spoilt else None

    async def policy(conversation: Conversation) -> str:
        problem = conversation.problem
        shown = ""
        if search:
            draw = random.Random(f"{seed} {problem.id} {conversation.chain}")
            shown = accepted(problem, draw, spoilt, search)
        return reply(problem.prompt, observed(conversation), shown)

    return policy


def accepted(problem: Problem, draw: random.Random, spoilt: float, search: PageSearch) -> str:
    """The mistake of the first attempt with right fills; "" for one without a mistake, and after
    ATTEMPTS.
    """
    right = call_text("answer", answer=written(problem.facts["answers"]))
    for _ in range(ATTEMPTS):
        mistake = draw.choice(MISTAKES) if draw.random() < spoilt else ""
        seen = list[str]()
        while query := _QUERY.search(reply(problem.prompt, seen, mistake)):
            seen.append(search(query[1], len(seen) + 1, problem))
        if not mistake or reply(problem.prompt, seen, mistake) == right:
            return mistake
    return ""


def _search(corpus: str, results: int) -> PageSearch:
    version = hashlib.sha256(Path(corpus).read_bytes()).hexdigest()
    settings = {"corpus": corpus, "sha256": version, "results": results, "hides": "source"}
    # a decorator's result has another type than the class
    tool: Any = pages_search.Search
    search = tool.with_settings(**settings).function
    return lambda query, page, problem: str(search(query, page, problem=problem))
