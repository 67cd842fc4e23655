"""Problems with a four-digit number as answer. Each of four witnesses (speakers) has one digit."""

import random
from collections.abc import Iterator

from agentfly_core import Problem, generated
from agentfly_core.datasets.splitting import sampled


@generated
def hidden_numbers(seed: int, train: int, validation: int, test: int) -> dict[str, list[Problem]]:
    """Make problems for each split, such as

        Problem(
            "4731-south",
            "Which number? First south.",
            {"answer": "3147", "digits": "4731", "first": "south"},
        )

    In the facts, `digits` has one digit for each of the witnesses north, east, south and west, in
    this order. Two pairs of witnesses report their digits: north with east, and south with west.
    `first` is "north" or "south", depending on which pair reports first. `answer` has the digits in
    the order of the reports. Splits share no value of `digits`. Raises ValueError for more than
    10,000 problems.
    """
    draw = random.Random(seed)

    def problems(number: int) -> Iterator[Problem]:
        digits, first = f"{number:04}", draw.choice(["north", "south"])
        answer = digits if first == "north" else digits[2:] + digits[:2]
        facts = {"answer": answer, "digits": digits, "first": first}
        yield Problem(f"{digits}-{first}", f"Which number? First {first}.", facts)

    sizes = {"train": train, "validation": validation, "test": test}
    return sampled(draw, range(10_000), problems, sizes)
