"""The first stop string in a text, and the text before it."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter


def first_stop(text: str, stop: Sequence[str]) -> tuple[int, int] | None:
    """Begin and end of the stop string that is complete first, None where there is none:
    `first_stop("3.\\nObservation: 4", ["Observation:"])` is (3, 15).

    Of two that end together it is the one that stands first in `stop`, as in vLLM.
    """
    begins = [(text.find(one), len(one)) for one in stop]
    ends = [(begin, begin + length) for begin, length in begins if begin >= 0]
    return min(ends, key=itemgetter(1), default=None)


def before_stop(text: str, stop: Sequence[str]) -> str:
    """The text before the first stop string, all of it where there is none."""
    hit = first_stop(text, stop)
    return text[: hit[0]] if hit else text
