"""How well does a short answer fit the right one? As SQuAD and HotpotQA measure it."""

from __future__ import annotations

import re
import string
from collections import Counter

from agentfly_core.authoring.reward import reward
from agentfly_core.records.trajectory import Problem, Trajectory

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


@reward
async def qa_em(trajectory: Trajectory) -> float:
    """1 when the answer is one of the right ones, but for case, articles, punctuation and spaces
    (arXiv 1606.05250, section 6.1); else, or without one, 0.

    `problem.facts["answer"]` is the right answer, or a list of those that are right.
    """
    said = normalised(trajectory.answer or "")
    return float(said != "" and said in map(normalised, right_answers(trajectory.problem)))


@reward
async def qa_f1(trajectory: Trajectory) -> float:
    """The F1 of the words that the answer has in common with a right one, the best of these; words
    are compared as `qa_em` compares answers.

    "Lima in Peru" earns 0.5 where "Peru" is right: 2 * p * r / (p + r) with precision p = 1/3 and
    recall r = 1.
    """
    said = normalised(trajectory.answer or "").split()
    best = 0.0
    for right in right_answers(trajectory.problem):
        words = normalised(right).split()
        if common := (Counter(said) & Counter(words)).total():
            best = max(best, 2 * common / (len(said) + len(words)))
    return best


def normalised(text: str) -> str:
    """`normalised("The  River-Bank!")` is "riverbank": in lower case, without ASCII punctuation
    and articles, with one space between words.
    """
    bare = text.lower().translate(_NO_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", bare).split())


def right_answers(problem: Problem) -> list[str]:
    """The fact `answer` as a list of texts; raises KeyError without it, ValueError where it lists
    none.
    """
    right = problem.facts["answer"]
    found = [str(one) for one in (right if isinstance(right, list | tuple) else [right])]
    if not found:
        raise ValueError("the fact 'answer' is an empty list, expected a right answer or more")
    return found
