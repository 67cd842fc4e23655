"""Problems in which the prompt describes a building with random sizes and materials."""

import random
from collections import Counter
from collections.abc import Sequence
from itertools import product
from typing import Any

from agentfly_core import Problem, digest, generated
from agentfly_core.datasets.names import SHARES
from agentfly_core.datasets.splitting import shares
from agentfly_core.recipes.blueprint.families import (
    FAMILIES,
    MATERIALS,
    PartBlueprints,
    order,
    parts_of,
)
from agentfly_core.recipes.blueprint.scoring import assembled
from agentfly_core.recipes.blueprint.world import BLOCKS, SCAFFOLDING


@generated
def orders(
    seed: int,
    train: int,
    validation: int,
    test: int,
    families: Sequence[str] = tuple(FAMILIES),
    survival: bool = False,
) -> dict[str, list[Problem]]:
    """Make problems for each split. The building in problem i belongs to the family
    `families[i % len(families)]`:

        Problem("tower-3f2a90c1d4e5b678",
                "Build the tower: side 4, height 7, mast 3; walls brick, roof tile.",
                {"family": "tower", "parts": [["walls", "hollow_box brick 1 1 0 4 4 6"], ...]})

    All problems of a family with the same sizes (such as side 4, height 7, mast 3) are in the same
    split. The split of the sizes does not depend on the seed. With `survival`, the stock of blocks
    is limited. The fact `stock` then has the blocks of the building and 64 blocks of scaffolding.
    """
    draw, sizes = random.Random(seed), {name: _sizes(name) for name in families}

    def drawn_order(split: str, number: int) -> Problem:
        name = families[number % len(families)]
        family = FAMILIES[name]
        chosen = zip(family.sizes, draw.choice(sizes[name][split]), strict=True)
        blocks = draw.sample(MATERIALS, len(family.materials))
        text = order(name, dict(chosen), dict(zip(family.materials, blocks, strict=True)))
        parts = parts_of(text)
        # a list, because stored facts sort their names and the order of parts matters
        facts: dict[str, Any] = {"family": name, "parts": [[*part] for part in parts.items()]}
        if survival:
            facts["stock"] = _stock(parts)
        return Problem(f"{name}-{digest([text, split, number])[:16]}", text, facts)

    return {
        split: [drawn_order(split, number) for number in range(size)]
        for split, size in (("train", train), ("validation", validation), ("test", test))
    }


def _sizes(name: str) -> dict[str, Sequence[tuple[int, ...]]]:
    """Return the allowed sizes of a building family for each split.

    For a tower, (4, 7, 3) means side 4, height 7 and mast 3, in blocks.
    """
    sizes = [*product(*(range(low, high + 1) for low, high in FAMILIES[name].sizes.values()))]
    random.Random(name).shuffle(sizes)
    return shares(sizes, SHARES)


def _stock(parts: PartBlueprints) -> dict[str, int]:
    """Count the blocks of a building, and add 64 blocks of scaffolding."""
    target = assembled(parts).target
    counts = Counter(BLOCKS[number] for number in target[target > 0])
    return {**dict(sorted(counts.items())), SCAFFOLDING: 64}
