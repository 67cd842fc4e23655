"""Questions for pretrained models: "Which of these is an animal: saw, France or horse?"."""

import random
import tomllib
from collections.abc import Mapping, Sequence
from itertools import combinations, product
from pathlib import Path

from agentfly_core import Problem, generated
from agentfly_core.datasets.splitting import sample, shares

KINDS: Mapping[str, str] = tomllib.loads(Path(__file__).with_name("kinds.toml").read_text())
"""For each kind, such as "an animal", a text that consists of the words of this kind."""
SHARES = {"train": 10, "validation": 3, "test": 7}
"""The number of words of each kind (such as "an animal") in each split."""


@generated
def kinds(seed: int, train: int, validation: int, test: int) -> dict[str, list[Problem]]:
    """Make problems for each split, such as

        Problem("animal-saw-France-horse", "Which of these is an animal: saw, France or horse?",
            {"answer": "horse", "options": ["saw", "France", "horse"], "kind": "an animal"})

    Splits share no word. Raises ValueError if more problems are requested than exist.
    """
    draw = random.Random(seed)
    words: dict[str, dict[str, Sequence[str]]] = {split: {} for split in SHARES}
    for kind, text in KINDS.items():
        members = text.split()
        draw.shuffle(members)
        for split, share in shares(members, SHARES).items():
            words[split][kind] = share
    sizes = {"train": train, "validation": validation, "test": test}
    return {split: _problems(draw, words[split], size, split) for split, size in sizes.items()}


def _problems(
    draw: random.Random, words: Mapping[str, Sequence[str]], size: int, split: str
) -> list[Problem]:
    chances = [
        (kind, trio)
        for kind in words
        for others in combinations([other for other in words if other != kind], 2)
        for trio in product(words[kind], *(words[other] for other in others))
    ]
    problems = []
    for kind, (right, *wrong) in sample(draw, chances, size, split):
        options = draw.sample([right, *wrong], 3)
        prompt = f"Which of these is {kind}: {options[0]}, {options[1]} or {options[2]}?"
        name = "-".join([*kind.split()[1:], *options])
        facts = {"answer": right, "options": options, "kind": kind}
        problems.append(Problem(name, prompt, facts))
    return problems
