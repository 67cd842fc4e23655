"""Questions for pretrained models: which of three words is an animal, a fruit, a tool?"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from itertools import combinations, product

from agentfly_core import Problem, generated
from agentfly_core.datasets.splitting import sample, shares

KINDS = {
    "an animal": "camel cat cow dog donkey elephant fox frog goat horse lion monkey mouse pig "
    "rabbit sheep snake tiger whale wolf",
    "a color": "beige black blue brown crimson gray green indigo magenta maroon orange pink "
    "purple red scarlet teal turquoise violet white yellow",
    "a country": "Austria Brazil Canada Chile China Cuba Denmark Egypt France Germany Greece "
    "India Italy Japan Kenya Mexico Norway Poland Spain Sweden",
    "a fruit": "apple apricot banana blueberry cherry coconut fig grape grapefruit guava kiwi "
    "lemon mango melon papaya pear pineapple pomegranate raspberry strawberry",
    "a garment": "apron belt blouse cardigan coat dress glove hat jacket jeans pajamas scarf "
    "shirt shorts skirt sock suit sweater trousers vest",
    "a musical instrument": "accordion banjo bassoon cello clarinet drum flute guitar harmonica "
    "harp lute mandolin oboe piano saxophone trombone trumpet tuba violin xylophone",
    "a tool": "axe chisel crowbar drill hammer hatchet hoe ladder mallet pickaxe pliers rake "
    "sander saw screwdriver shovel sickle spade trowel wrench",
    "a vehicle": "airplane ambulance bicycle boat bus canoe car ferry helicopter motorcycle ship "
    "sled submarine taxi tractor train tram truck van yacht",
}
SHARES = {"train": 10, "validation": 3, "test": 7}
"""The number of words of each kind in a split."""


@generated
def kinds(seed: int, train: int, validation: int, test: int) -> dict[str, list[Problem]]:
    """Problems for each split, such as

        Problem("animal-saw-France-horse", "Which of these is an animal: saw, France or horse?",
            {"answer": "horse", "options": ["saw", "France", "horse"], "kind": "an animal"})

    Splits share no word. Raises ValueError for more problems than there are.
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
