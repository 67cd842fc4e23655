"""Shopping lists with the names of two products. The agent must find the products' keys."""

import random
from collections.abc import Sequence
from itertools import permutations, product
from typing import Any

from agentfly_core import Problem, generated

COLOURS = ("red", "blue", "green", "black", "white", "pink")
THINGS = ("cup", "pen", "hat", "box", "bag", "jar")
COUNTS = (1, 2, 3)
ShoppingList = tuple[tuple[str, int], ...]


@generated
def shop(
    seed: int, train: int, validation: int, test: int, products: int = 6
) -> dict[str, list[Problem]]:
    """Make problems for each split.

    Each problem has its own shop with `products` products and its own shopping list:

        Problem("2-red-cup-1-blue-pen", "Buy 2 red cup and 1 blue pen.", {
            "products": {"47": {"name": "red cup", "price": 3, "stock": 5}, ...},
            "order": {"47": 2, "81": 1},
        })

    The fact `order` is the right order: two pieces of the product with the key "47", and one piece
    of the product with the key "81". Raises ValueError if more problems are requested than exist,
    and for fewer than 2 or more than 36 products.
    """
    names = [f"{colour} {thing}" for colour, thing in product(COLOURS, THINGS)]
    if not 2 <= products <= len(names):
        raise ValueError(f"data.products is {products}, expected 2 to {len(names)}.")
    pairs = product(permutations(names, 2), product(COUNTS, repeat=2))
    wishes = [((one, ones), (other, others)) for (one, other), (ones, others) in pairs]
    size = train + validation + test
    if size > len(wishes):
        raise ValueError(
            f"data.train, data.validation and data.test request {size} problems, but there are "
            f"only {len(wishes)}. Lower one of them."
        )
    draw = random.Random(seed)
    problems = [_problem(draw, wish, names, products) for wish in draw.sample(wishes, size)]
    return {
        "train": problems[:train],
        "validation": problems[train : train + validation],
        "test": problems[train + validation :],
    }


def _problem(draw: random.Random, wish: ShoppingList, names: Sequence[str], size: int) -> Problem:
    wanted = [name for name, _ in wish]
    shelf = wanted + draw.sample([name for name in names if name not in wanted], size - len(wish))
    # shuffle, because the wanted products must not come first
    draw.shuffle(shelf)
    keys = dict(zip(shelf, map(str, draw.sample(range(10, 100), size)), strict=True))
    facts: dict[str, Any] = {
        "products": {
            key: {"name": n, "price": draw.randint(1, 9), "stock": draw.randint(3, 9)}
            for n, key in keys.items()
        },
        "order": {keys[name]: count for name, count in wish},
    }
    lines = [f"{count} {name}" for name, count in wish]
    return Problem("-".join(lines).replace(" ", "-"), f"Buy {' and '.join(lines)}.", facts)
