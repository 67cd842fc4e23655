"""Sums of three numbers of two digits, said in words: generated problems that take two steps."""

from __future__ import annotations

import random
from itertools import chain, combinations, permutations

from agentfly_core.datasets.arithmetic import NUMBERS
from agentfly_core.datasets.splitting import sample, shares
from agentfly_core.records.generated_dataset import generated
from agentfly_core.records.trajectory import Problem
from agentfly_core.tools.calculator import evaluate, written

SIGNS = {"plus": "+", "minus": "-", "times": "*"}


@generated
def two_steps(seed: int, train: int, validation: int, test: int) -> dict[str, list[Problem]]:
    """Problems for each split, such as

        Problem(
            "two-steps-17-times-50-plus-12",
            "What is 17 times 50, then plus 12?",
            {"answer": "862", "steps": ["17 times 50", "plus 12"]},
        )

    The first two numbers of a problem, in whatever order, are those of no problem of another split.
    Raises ValueError for more problems than there are.
    """
    sizes = {"train": train, "validation": validation, "test": test}
    draw = random.Random(seed)
    pairs = list(combinations(NUMBERS, 2))
    draw.shuffle(pairs)
    splits = {}
    for split, share in shares(pairs, sizes).items():
        problems = []
        for a, b in chain.from_iterable(permutations(pair) for pair in share):
            word, then = draw.choice(list(SIGNS)), draw.choice(list(SIGNS))
            c = draw.choice(NUMBERS)
            total = evaluate(f"({a}{SIGNS[word]}{b}){SIGNS[then]}{c}")
            name = f"two-steps-{a}-{word}-{b}-{then}-{c}"
            prompt = f"What is {a} {word} {b}, then {then} {c}?"
            facts = {"answer": written(total), "steps": [f"{a} {word} {b}", f"{then} {c}"]}
            problems.append(Problem(name, prompt, facts))
        splits[split] = sample(draw, problems, sizes[split], split)
    return splits
