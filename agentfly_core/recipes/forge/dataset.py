"""Questions of five kinds. Most of them are hard without a function that computes the value.

`Problem.facts["role"]` determines how the agent uses the problem; see `questions`.
"""

import random
from collections.abc import Callable, Sequence

from agentfly_core import Problem, digest, generated

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def _word(draw: random.Random) -> str:
    return "".join(draw.choices(LETTERS, k=draw.randint(5, 9)))


def _sum(draw: random.Random) -> tuple[str, str]:
    a, b = draw.randint(1, 99), draw.randint(1, 99)
    return f"What is {a} + {b}?", str(a + b)


def _product(draw: random.Random) -> tuple[str, str]:
    a, b = draw.randint(1000, 9999), draw.randint(1000, 9999)
    return f"What is {a} times {b}?", str(a * b)


def _count(draw: random.Random) -> tuple[str, str]:
    word = _word(draw)
    letter = draw.choice(word)
    return f"How often is {letter} in {word}?", str(word.count(letter))


def _backwards(draw: random.Random) -> tuple[str, str]:
    word = _word(draw)
    return f"What is {word} backwards?", word[::-1]


def _binary(draw: random.Random) -> tuple[str, str]:
    number = draw.randint(1000, 9999)
    return f"What is {number} in binary?", f"{number:b}"


KINDS: dict[str, Callable[[random.Random], tuple[str, str]]] = {
    "sum": _sum,
    "product": _product,
    "count": _count,
    "backwards": _backwards,
    "binary": _binary,
}


@generated
def questions(
    seed: int, train: int, validation: int, test: int, kinds: Sequence[str] = tuple(KINDS)
) -> dict[str, list[Problem]]:
    """Make problems for each split. No question occurs twice.

    The problems use the elements of `kinds` in rotation:

        Problem("product-3f2a90c1d4e5b678", "What is 1234 times 5678?",
            {"answer": "7006652", "kind": "product", "role": "train"})

    The first problem of the split `train` has the role `optimize`: in its episode, the speaker
    `optimizer` changes the agent's tools. Half of the other problems of this split have the role
    `train` and half `validation`. All problems of the splits `validation` and `test` have the role
    `test`.
    """
    draw, used = random.Random(seed), set[str]()

    def drawn(number: int, role: str) -> Problem:
        kind = kinds[number % len(kinds)]
        prompt, answer = KINDS[kind](draw)
        while prompt in used:
            prompt, answer = KINDS[kind](draw)
        used.add(prompt)
        facts = {"answer": answer, "kind": kind, "role": role}
        return Problem(f"{kind}-{digest([prompt, role, number])[:16]}", prompt, facts)

    # no answer of the optimizer counts as right, because the next step judges its proposal
    facts = {"answer": "-", "kind": "optimize", "role": "optimize"}
    optimizer = Problem("optimize", "Improve the functions.", facts)
    roles = ["train"] * (train // 2) + ["validation"] * ((train - 1) // 2)
    first = [drawn(number, role) for number, role in enumerate(roles)]
    held_out = {"validation": validation, "test": test}
    return {
        "train": [optimizer, *first],
        **{name: [drawn(n, "test") for n in range(size)] for name, size in held_out.items()},
    }
