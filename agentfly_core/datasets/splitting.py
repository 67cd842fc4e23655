"""Cutting what problems are made from into splits that share nothing."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")


def shares(items: Sequence[T], sizes: Mapping[str, int]) -> dict[str, Sequence[T]]:
    """Consecutive items for each split, in proportion to its size: `{"train": items[:80], ...}`."""
    parts: dict[str, Sequence[T]] = {}
    start = problems = 0
    for split, size in sizes.items():
        problems += size
        end = len(items) * problems // sum(sizes.values())
        parts[split] = items[start:end]
        start = end
    return parts


def sample(draw: random.Random, problems: Sequence[T], size: int, split: str) -> list[T]:
    """`size` of the items; raises ValueError for fewer."""
    if size > len(problems):
        raise ValueError(
            f"data.{split} asks for {size} problems, {len(problems)} are left for it; "
            "ask for fewer."
        )
    return draw.sample(problems, size)
