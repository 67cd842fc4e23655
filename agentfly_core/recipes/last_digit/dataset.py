"""Problems about the last digit of a calculation with several steps."""

import random
import re

from agentfly_core import Problem, generated

SUMMANDS, FACTORS = range(1, 10), (3, 7, 9)
"""Numbers to add, and numbers to multiply by. These factors share no divisor above 1 with 10, so
all last digits are equally likely after each step of a calculation.
"""
STEP = re.compile(r"([+*])(\d)")


@generated
def calculations(
    seed: int, train: int, validation: int, test: int, steps: int = 4
) -> dict[str, list[Problem]]:
    """Make problems for each split, such as

        Problem("3+4*7+1", "What is the last digit of 3 +4 *7 +1, step by step?", {"answer": "0"})

    A calculation has `steps` operations, which are computed from left to right. No calculation is
    in two splits. Raises ValueError if `steps` is below 1.
    """
    if steps < 1:
        raise ValueError(f"data.steps is {steps}, expected at least 1.")
    draw, sizes = random.Random(seed), {"train": train, "validation": validation, "test": test}
    made: dict[str, Problem] = {}
    while len(made) < sum(sizes.values()):
        calculation = drawn(draw, steps)
        spaced = STEP.sub(r" \1\2", calculation)
        prompt = f"What is the last digit of {spaced}, step by step?"
        made[calculation] = Problem(calculation, prompt, {"answer": digits(calculation)[-1]})
    problems = iter(made.values())
    return {split: [next(problems) for _ in range(size)] for split, size in sizes.items()}


def drawn(draw: random.Random, steps: int) -> str:
    """Draw a random calculation with this number of steps. `3+4*7+1` has three steps."""
    signs = draw.choices("+*", k=steps)
    numbers = (draw.choice(SUMMANDS if sign == "+" else FACTORS) for sign in signs)
    return str(draw.randrange(10)) + "".join(map("{}{}".format, signs, numbers))


def calculation_of(question: str) -> str:
    """Return the calculation in a prompt."""
    return question.removeprefix("What is the last digit of ").partition(",")[0].replace(" ", "")


def digits(calculation: str) -> list[str]:
    """Return the last digit of the result after each step, computed from left to right.

    For `3+4*7+1`, the last digits are `["7", "9", "0"]`.
    """
    digit, results = int(calculation[0]), []
    for sign, number in STEP.findall(calculation):
        digit = (digit + int(number) if sign == "+" else digit * int(number)) % 10
        results.append(str(digit))
    return results
