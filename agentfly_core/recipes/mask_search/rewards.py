"""The reward for filled masks."""

from collections.abc import Sequence

from agentfly_core import Examples, Problem, Score, Trajectory, reward

SEPARATOR = "||"
LONGEST = 8
"""The largest number of words in a fill (the text for one mask)."""
UNREADABLE = -1.0


def _examples(problem: Problem) -> Examples:
    right = written(problem.facts["answers"])
    return Examples((right,), ("", f"{right} {SEPARATOR} {right}", "[mask]"))


@reward(examples=_examples)
async def fills(trajectory: Trajectory) -> Score:
    """The share of masks that an answer such as `A || B` fills correctly.

    The entry `answers` of `Problem.facts` has the right text for each mask. In a readable answer,
    each mask has a fill (text) of 1 to LONGEST words, and all fills are different. The reward of an
    unreadable answer is UNREADABLE (-1). The partial score `readable` is 1 for a readable answer.
    The partial score `solved` is 1 if all fills are right.
    """
    right = [*map(_plain, trajectory.problem.facts["answers"])]
    given = [*map(_plain, (trajectory.answer or "").split(SEPARATOR))]
    readable = len(given) == len(right) == len({*given}) and all(
        0 < len(fill.split()) <= LONGEST for fill in given
    )
    if not readable:
        return Score(UNREADABLE, parts={"readable": 0.0, "solved": 0.0})
    share = sum(map(str.__eq__, given, right)) / len(right)
    return Score(share, parts={"readable": 1.0, "solved": float(share == 1)})


def written(fills: Sequence[str]) -> str:
    """Join the texts for all masks into an answer for the reward `fills`, such as `A || B`."""
    return f" {SEPARATOR} ".join(fills)


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())
