"""How well does a short answer fit the right one? As SQuAD and HotpotQA measure it."""

from __future__ import annotations

import re
import string
from collections import Counter

from agentfly_core.authoring.reward import reward
from agentfly_core.records.trajectory import Trajectory
from agentfly_core.rewards.gold import examples, right_answers

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = re.compile(rf"((?<!\S)-(?=\.?\d)|\.(?=\d))|[{re.escape(string.punctuation)}]")
"""The group keeps the sign and the point of a number, which SQuAD removes: 1.5 is not 15."""
_EXAMPLES = examples(lambda right: [f"{right} 7", f"7{right}"])


@reward(examples=_EXAMPLES)
async def qa_em(trajectory: Trajectory) -> float:
    """1 when the answer equals a right one apart from case, articles, punctuation and spaces (arXiv
    1606.05250, section 6.1); 0 for any other answer and without an answer.

    See `gold.right_answers` for the shapes of `problem.facts["answer"]`.
    """
    given = normalised(trajectory.answer or "")
    return float(given != "" and given in map(normalised, right_answers(trajectory.problem)))


@reward(examples=_EXAMPLES)
async def qa_f1(trajectory: Trajectory) -> float:
    """The F1 of the words that the answer has in common with a right one, the best of these; words
    are compared as `qa_em` compares answers.

    "Lima in Peru" earns 0.5 where "Peru" is right: 2 * p * r / (p + r) with precision p = 1/3 and
    recall r = 1.
    """
    given = normalised(trajectory.answer or "").split()
    best = 0.0
    for right in right_answers(trajectory.problem):
        words = normalised(right).split()
        if common := (Counter(given) & Counter(words)).total():
            best = max(best, 2 * common / (len(given) + len(words)))
    return best


def normalised(text: str) -> str:
    """`normalised("The  River-Bank!")` is "riverbank": in lower case, without ASCII punctuation
    and articles, with one space between words.

    A number keeps its sign and its point. Articles stay where no other word remains, and
    punctuation stays where no word remains: `normalised("A.")` is "a".
    """
    lower = " ".join(text.lower().replace("\u2212", "-").split())
    bare = " ".join(_PUNCTUATION.sub(r"\1", lower).split())
    return " ".join(_ARTICLES.sub(" ", bare).split()) or bare or lower
