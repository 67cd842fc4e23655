"""Questions about the boxes on shelves, and questions about capitals and sums."""

import random
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentfly_core import Problem, generated
from agentfly_core.datasets.splitting import sampled

BOXES = range(10, 100)
SHELVES = range(100, 1000)
CAPITALS: Mapping[str, str] = tomllib.loads(Path(__file__).with_name("capitals.toml").read_text())
"""The capital of each country, such as `{"Chile": "Santiago"}`."""
SUMMANDS = (range(1, 10), range(10, 100), range(100, 1000))
"""Ranges of summands with one, two and three digits."""
BRIEFLY = "Answer at once, with one word or number."
"""The beginning of all prompts of `capitals_and_sums`.

The text is at the beginning, because SmolLM2 computed few sums correctly with the text at the end.
"""
NEAR = 20
"""The wrong options of a question differ from the right sum by at most NEAR."""


@generated
def shelves(
    seed: int, train: int, validation: int, test: int, shelves: int = 96, fixed: float = 0.5
) -> dict[str, list[Problem]]:
    """Make problems for each split, such as

        Problem("shelf-417-train-0", "Boxes on shelf 417?",
            {"answer": "58", "shelf": 417, "kind": "fixed"})

    There are `shelves` shelves of two kinds. A shelf of the kind `fixed` has the same number of
    boxes in all problems. For a shelf of the kind `changing`, the number is drawn anew for each
    problem. With `fixed=0.5`, half of the shelves are of the kind `fixed`. Training problems rotate
    through all shelves. Validation problems use half of the shelves of each kind, and test problems
    use the other half. Raises ValueError for fewer than 2 or more than 900 shelves.
    """
    if not 2 <= shelves <= len(SHELVES):
        raise ValueError(f"data.shelves is {shelves}, expected 2 to {len(SHELVES)}.")
    draw = random.Random(seed)
    numbers = draw.sample(SHELVES, shelves)
    contents = {number: draw.choice(BOXES) for number in numbers[: round(fixed * shelves)]}
    # validation gets every second shelf. Fixed shelves come first, so each kind is halved
    chosen = {"train": numbers, "validation": numbers[::2], "test": numbers[1::2]}
    for of_split in chosen.values():
        draw.shuffle(of_split)
    sizes = {"train": train, "validation": validation, "test": test}

    def problem(split: str, place: int) -> Problem:
        number = chosen[split][place % len(chosen[split])]
        boxes = contents.get(number) or draw.choice(BOXES)
        kind = "fixed" if number in contents else "changing"
        facts = {"answer": str(boxes), "shelf": number, "kind": kind}
        name = f"shelf-{number}-{split}-{place // len(chosen[split])}"
        return Problem(name, f"Boxes on shelf {number}?", facts)

    return {
        split: [problem(split, place) for place in range(size)] for split, size in sizes.items()
    }


@generated
def capitals_and_sums(
    seed: int, train: int, validation: int, test: int
) -> dict[str, list[Problem]]:
    """Make problems for each split, for pretrained models and the reward `choice`:

        Problem("capital-Chile", "Answer at once, with one word or number. What is the capital ...",
            {"answer": "Santiago", "options": [...], "kind": "capital"})

    Problems are drawn from a pool with three kinds of questions. A quarter of the pool asks for a
    capital, a quarter asks for the country of a capital, and half asks for a sum. The questions of
    different splits share no country and no sum. Raises ValueError if more problems are requested
    than the pool has.
    """
    draw = random.Random(seed)
    countries = [_of_country(country) for country in CAPITALS]
    sums = [_sum(*pair) for pair in _pairs(draw, 2 * len(countries))]
    items = [*countries, *zip(sums[::2], sums[1::2], strict=True)]
    sizes = {"train": train, "validation": validation, "test": test}
    return sampled(draw, items, lambda item: item, sizes)


def _of_country(country: str) -> tuple[Problem, Problem]:
    capital = CAPITALS[country]
    facts = {"answer": capital, "options": [*CAPITALS.values()], "kind": "capital"}
    back = {"answer": country, "options": [*CAPITALS], "kind": "country"}
    return (
        _problem(f"capital-{country}", f"What is the capital of {country}?", facts),
        _problem(f"country-{country}", f"{capital} is the capital of which country?", back),
    )


def _pairs(draw: random.Random, count: int) -> list[tuple[int, int]]:
    pairs = dict[tuple[int, int], None]()
    while len(pairs) < count:
        digits = draw.choice(SUMMANDS)
        pairs[draw.choice(digits), draw.choice(digits)] = None
    return list(pairs)


def _sum(x: int, y: int) -> Problem:
    near = range(x + y - NEAR, x + y + NEAR + 1)
    # a reply may repeat the question, so the two summands must not be wrong options
    options = [str(number) for number in near if number == x + y or number not in (x, y)]
    facts = {"answer": str(x + y), "options": options, "kind": "sum"}
    return _problem(f"sum-{x}-{y}", f"What is {x}+{y}?", facts)


def _problem(name: str, question: str, facts: dict[str, Any]) -> Problem:
    return Problem(name, f"{BRIEFLY} {question}", facts)
