"""Problems of two calculations with two-digit numbers, such as "17 times 50, then plus 12"."""

import random
from collections.abc import Iterator
from itertools import combinations, permutations

from agentfly_core import Problem, generated
from agentfly_core.datasets.arithmetic import NUMBERS
from agentfly_core.datasets.splitting import sampled
from agentfly_core.tools.calculator import evaluate, written

SIGNS = {"plus": "+", "minus": "-", "times": "*"}


@generated
def two_steps(seed: int, train: int, validation: int, test: int) -> dict[str, list[Problem]]:
    """Make problems for each split, such as

        Problem(
            "two-steps-17-times-50-plus-12",
            "What is 17 times 50, then plus 12?",
            {"answer": "862", "steps": ["17 times 50", "plus 12"]},
        )

    All problems that begin with the same two numbers, such as 17 and 50, are in the same split. The
    order of the two numbers does not matter. Raises ValueError if more problems are requested than
    exist.
    """
    sizes = {"train": train, "validation": validation, "test": test}
    draw = random.Random(seed)

    def problems(pair: tuple[int, int]) -> Iterator[Problem]:
        for a, b in permutations(pair):
            word, then = draw.choice(list(SIGNS)), draw.choice(list(SIGNS))
            c = draw.choice(NUMBERS)
            total = evaluate(f"({a}{SIGNS[word]}{b}){SIGNS[then]}{c}")
            facts = {"answer": written(total), "steps": [f"{a} {word} {b}", f"{then} {c}"]}
            prompt = f"What is {a} {word} {b}, then {then} {c}?"
            yield Problem(f"two-steps-{a}-{word}-{b}-{then}-{c}", prompt, facts)

    return sampled(draw, combinations(NUMBERS, 2), problems, sizes)
