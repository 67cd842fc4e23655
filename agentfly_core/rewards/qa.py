"""Rewards for short answers, as in SQuAD and HotpotQA."""

import re
import string
from collections import Counter

from agentfly_core.authoring.reward import reward
from agentfly_core.records.trajectory import Trajectory
from agentfly_core.rewards.gold import examples, right_answers

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = re.compile(rf"((?<!\S)-(?=\.?\d)|\.(?=\d))|[{re.escape(string.punctuation)}]")
"""A pattern for punctuation. Group 1 matches the sign and the decimal point of a number.

The matches of group 1 are kept, and all other matches are removed. SQuAD's script also removes
signs and decimal points, so 1.5 and 15 would be equal.
"""
_EXAMPLES = examples(lambda right: [f"{right} 7", f"7{right}"])


@reward(examples=_EXAMPLES)
async def qa_em(trajectory: Trajectory) -> float:
    """1 if the answer equals a right answer, else 0 ("exact match", arXiv 1606.05250, section 6.1).

    Case, articles, punctuation and spaces are ignored. The right answers are read from
    `Problem.facts["answer"]` by `gold.right_answers`.
    """
    given = normalised(trajectory.answer or "")
    return float(given != "" and given in map(normalised, right_answers(trajectory.problem)))


@reward(examples=_EXAMPLES)
async def qa_f1(trajectory: Trajectory) -> float:
    """The F1 score of the words in the answer, compared with the words in a right answer.

    Of several right answers, the answer with the highest F1 score counts. Words are normalised as
    in `qa_em`. If the right answer is "Peru", the answer "Lima in Peru" has the precision 1/3 and
    the recall 1, and earns 0.5. If the right answer is "yes" or "no", any other answer, such as
    "yes no", earns 0 as in HotpotQA (arXiv 1809.09600).
    """
    given = normalised(trajectory.answer or "").split()
    best = 0.0
    for right in right_answers(trajectory.problem):
        words = normalised(right).split()
        # otherwise "yes no" would earn 2/3 for each such question
        if words in (["yes"], ["no"]) and given != words:
            continue
        if common := (Counter(given) & Counter(words)).total():
            best = max(best, 2 * common / (len(given) + len(words)))
    return best


def normalised(text: str) -> str:
    """Convert a text to lower case, and remove punctuation and articles.

    For example, "The River-Bank!" becomes "riverbank". Numbers keep their sign and decimal point. A
    text that has only articles keeps them: "A." becomes "a". A text that has only punctuation keeps
    the punctuation.
    """
    lower = " ".join(text.lower().replace("\u2212", "-").split())
    bare = " ".join(_PUNCTUATION.sub(r"\1", lower).split())
    return " ".join(_ARTICLES.sub(" ", bare).split()) or bare or lower
