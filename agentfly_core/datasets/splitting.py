"""Make splits that share nothing: divide the material of problems, and sample problems."""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from agentfly_core.records.trajectory import Problem
from agentfly_core.system.formats import hashing

T = TypeVar("T")


def shares(items: Sequence[T], sizes: Mapping[str, int]) -> dict[str, Sequence[T]]:
    """Divide items into consecutive parts in proportion to the splits' sizes: `{"train":
    items[:80], ...}`.
    """
    parts: dict[str, Sequence[T]] = {}
    start = problems = 0
    for split, size in sizes.items():
        problems += size
        end = len(items) * problems // sum(sizes.values())
        parts[split] = items[start:end]
        start = end
    return parts


def split_of(kind: str, item: str, splits: Sequence[str]) -> str:
    """Choose an item's split by the item's name only, because it must be the same for all seeds."""
    return splits[hashing.seed(kind, item) % len(splits)]


def sample(draw: random.Random, problems: Sequence[T], size: int, split: str) -> list[T]:
    """Sample `size` problems. Raises ValueError if `problems` has fewer."""
    if size > len(problems):
        raise ValueError(
            f"data.{split} is {size}, but only {len(problems)} problems are left for it. Lower "
            f"data.{split}."
        )
    return draw.sample(problems, size)


def sampled(
    draw: random.Random,
    items: Iterable[T],
    problems: Callable[[T], Iterable[Problem]],
    sizes: Mapping[str, int],
) -> dict[str, list[Problem]]:
    """Divide items among the splits, and sample problems made from them.

    Raises ValueError if too few problems are left for a split.
    """
    shuffled = list(items)
    draw.shuffle(shuffled)
    return {
        split: sample(draw, [one for item in share for one in problems(item)], sizes[split], split)
        for split, share in shares(shuffled, sizes).items()
    }
