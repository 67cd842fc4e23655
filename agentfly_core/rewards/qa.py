"""Rewards for short answers, as in SQuAD and HotpotQA."""

import re
import string
from collections import Counter

from agentfly_core.authoring.reward import reward
from agentfly_core.records.trajectory import Trajectory
from agentfly_core.rewards.gold import examples, right_answers

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = re.compile(rf"((?<!\S)-(?=\.?\d)|\.(?=\d))|[{re.escape(string.punctuation)}]")
"""Punctuation to remove. The group keeps the sign and the point of a number, which SQuAD removes:
1.5 is not 15.
"""
_EXAMPLES = examples(lambda right: [f"{right} 7", f"7{right}"])


@reward(examples=_EXAMPLES)
async def qa_em(trajectory: Trajectory) -> float:
    """1 if the answer equals a right answer except for case, articles, punctuation and spaces, else
    0.

    See arXiv 1606.05250, section 6.1, and `gold.right_answers` for `problem.facts["answer"]`.
    """
    given = normalised(trajectory.answer or "")
    return float(given != "" and given in map(normalised, right_answers(trajectory.problem)))


@reward(examples=_EXAMPLES)
async def qa_f1(trajectory: Trajectory) -> float:
    """The word F1 of the answer and a right answer. The right answer with the highest F1 counts.

    Words are compared as in `qa_em`. "Lima in Peru" earns 0.5 if "Peru" is right: 2 * p * r / (p +
    r) with p = 1/3 and r = 1.
    """
    given = normalised(trajectory.answer or "").split()
    best = 0.0
    for right in right_answers(trajectory.problem):
        words = normalised(right).split()
        if common := (Counter(given) & Counter(words)).total():
            best = max(best, 2 * common / (len(given) + len(words)))
    return best


def normalised(text: str) -> str:
    """Convert to lower case without punctuation and articles: "The River-Bank!" gives "riverbank".

    Numbers keep their sign and decimal point. Articles or punctuation are kept if nothing else
    would remain: "A." gives "a".
    """
    lower = " ".join(text.lower().replace("\u2212", "-").split())
    bare = " ".join(_PUNCTUATION.sub(r"\1", lower).split())
    return " ".join(_ARTICLES.sub(" ", bare).split()) or bare or lower
