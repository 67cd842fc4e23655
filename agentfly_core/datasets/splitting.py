"""Make disjoint splits: all problems that are made from an item belong to the same split."""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from agentfly_core.records.trajectory import Problem
from agentfly_core.system.formats import hashing
from agentfly_core.system.formats.text import counted

T = TypeVar("T")


def shares(items: Sequence[T], sizes: Mapping[str, int]) -> dict[str, Sequence[T]]:
    """Divide a list of items among the splits: `{"train": items[:80], "test": items[80:]}`.

    Each split gets consecutive items. The numbers of items are in proportion to `sizes`.
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
    """Choose the split of the item with the name `item`. The choice is the same for all seeds.

    The choice depends only on `item`, on `splits` and on `kind`, the name of the dataset.
    """
    return splits[hashing.seed(kind, item) % len(splits)]


def sample(draw: random.Random, problems: Sequence[T], size: int, split: str) -> list[T]:
    """Sample `size` problems for a split. Raises ValueError if there are fewer problems."""
    if size > len(problems):
        raise ValueError(
            f"data.{split} is {size}, but the data has only {counted(len(problems), 'problem')} "
            f"for this split. Lower data.{split}."
        )
    return draw.sample(problems, size)


def sampled(
    draw: random.Random,
    items: Iterable[T],
    problems: Callable[[T], Iterable[Problem]],
    sizes: Mapping[str, int],
) -> dict[str, list[Problem]]:
    """Divide items among the splits, and sample problems for each split.

    `problems` makes problems from an item. Raises ValueError if the items of a split make too few
    problems.
    """
    shuffled = list(items)
    draw.shuffle(shuffled)
    return {
        split: sample(draw, [one for item in share for one in problems(item)], sizes[split], split)
        for split, share in shares(shuffled, sizes).items()
    }
