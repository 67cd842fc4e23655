"""Demonstrations that fill gaps (masks) in prompts.

Three scripted roles work together: the planner reads the prompt, the rewriter makes search queries,
and the observer reads the results. Attempts with a wrong answer are rejected.
"""

import hashlib
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from agentfly_core import Conversation, Problem, call_text
from agentfly_core.datasets.players import Demonstrator, observed
from agentfly_core.recipes.mask_search.ramp import MASK
from agentfly_core.recipes.mask_search.rewards import written
from agentfly_core.tools import search as pages_search

MISTAKES = ("plan", "rewrite", "observe")
UNKNOWN = "unknown"
MOST_QUERIES = 4
PageSearch = Callable[[str, Problem], str]
"""A function from a query and a problem to search results."""
ATTEMPTS = 50
_QUERY = re.compile(r'"query": "(.*?)"')
_PAGE = re.compile(r"^\[\S+\] (\w+ \d+): (.*)$", re.MULTILINE)
_QUESTION = re.compile(r"Which (\w+) has the founder of (firm \d+)\?")


class Gaps(NamedTuple):
    """The page and the gaps of a prompt: `Gaps("firm 3072", ("badge", "person"))`.

    `subject` is the title of the page that the prompt is about. `cues` has the word before each gap
    (mask), such as "badge" for "badge [mask]".
    """

    subject: str
    cues: Sequence[str]


def planned(prompt: str) -> Gaps:
    """Act as the planner: read from a prompt which page to look up, and which gaps (masks) to fill.

    Returns the title of the page that the prompt is about, and the word before each gap.
    """
    if match := _QUESTION.match(prompt):
        return Gaps(match[2], [match[1]])
    text, _, title = prompt.rstrip(".").rpartition(" This is about ")
    return Gaps(title, re.findall(rf"(\w+) {re.escape(MASK)}", text))


def rewritten(plan: Gaps, observations: Sequence[str]) -> str:
    """Act as the rewriter: return the next search query.

    If a search result names the founder of the firm, such as "person 17", the query is the number
    of the founder, "17". Otherwise the query is the number of the firm, "3072" for "firm 3072".
    """
    return _founder(plan.subject, observations) or plan.subject.split()[-1]


def read(plan: Gaps, observations: Sequence[str]) -> list[str]:
    """Act as the observer: find the text for each gap (mask) of the prompt in the search results.

    If the text for a gap is not found, the gap's entry of the result is "".
    """
    founder = _founder(plan.subject, observations)
    facts = [text for title, text in _pages(observations) if title == f"person {founder}"]
    stated = f"person {founder} {' '.join(facts)}".lower()
    matches = [re.search(rf"\b{cue} (\d+)", stated) for cue in plan.cues]
    return [match[1] if match else "" for match in matches]


def _founder(firm: str, observations: Sequence[str]) -> str:
    texts = " ".join(text for _, text in _pages(observations))
    match = re.search(rf"\b{firm} was founded by person (\d+)", texts)
    return match[1] if match else ""


def _pages(observations: Sequence[str]) -> list[tuple[str, str]]:
    return _PAGE.findall("\n".join(observations))


def reply(prompt: str, observations: Sequence[str], mistake: str = "") -> str:
    """Return the next tool call (a search, or the final answer) as text.

    `mistake` is the kind of mistake to make, such as "plan". If it is "", no mistake is made.
    """
    plan = planned(prompt)
    if mistake == "plan":
        plan = plan._replace(subject="firm 0")
    fills = read(plan, observations)
    if not all(fills) and len(observations) < MOST_QUERIES:
        query = rewritten(plan, observations)
        if mistake == "rewrite" and not observations:
            query = query[:-1]
        return call_text("search", query=query)
    if mistake == "observe":
        fills = [rewritten(plan, ()), *fills[1:]]
    return call_text("answer", answer=written([fill or UNKNOWN for fill in fills]))


def team(
    problems: Sequence[Problem], seed: int, spoilt: float = 0.0, corpus: str = "", results: int = 1
) -> Demonstrator:
    """Return a policy that searches until each gap (mask) of the prompt is filled, then answers.

    If `spoilt` is above 0, some demonstrations contain a mistake from which the policy recovers.
    In this case, the policy first makes trial runs (attempts) of each episode, with real searches
    in the file `corpus`. `results` is the number of pages that a search returns. `spoilt` is the
    share of attempts with a mistake: the planner chooses a wrong subject, the rewriter shortens the
    query, or the observer takes a wrong number. Attempts without a mistake are accepted. An attempt
    with a mistake is accepted if the final answer is still correct. The policy demonstrates the
    first accepted attempt.
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
    """Make attempts at a problem, and return the mistake of the first accepted attempt.

    An attempt has a mistake with the probability `spoilt`. Attempts without a mistake are accepted,
    and the result is "". An attempt with a mistake is accepted if the final answer is
    still correct. If none of ATTEMPTS attempts is accepted, the result is "".
    """
    right = call_text("answer", answer=written(problem.facts["answers"]))
    for _ in range(ATTEMPTS):
        mistake = draw.choice(MISTAKES) if draw.random() < spoilt else ""
        seen = list[str]()
        while query := _QUERY.search(reply(problem.prompt, seen, mistake)):
            seen.append(search(query[1], problem))
        if not mistake or reply(problem.prompt, seen, mistake) == right:
            return mistake
    return ""


def _search(corpus: str, results: int) -> PageSearch:
    version = hashlib.sha256(Path(corpus).read_bytes()).hexdigest()
    settings = {"corpus": corpus, "sha256": version, "results": results, "hides": "source"}
    # the decorator's result does not have the type of the class
    tool: Any = pages_search.Search
    search = tool.with_settings(**settings).function
    return lambda query, problem: str(search(query, problem=problem))
