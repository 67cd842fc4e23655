"""Made-up names of people, companies and books; no name is in two splits."""

import random
from collections.abc import Sequence
from itertools import product

from agentfly_core.datasets.splitting import shares

FIRST = (
    "Anna Boris Clara Dario Edda Felix Greta Hugo Irma Jonas "
    "Karin Lukas Marta Nils Olga Pavel Rosa Stefan Tilda Viktor"
)
LAST = (
    "Adler Berg Castro Dahl Eriksen Fischer Gomez Holm Ivanov Jansen "
    "Keller Lind Moretti Novak Olsen Petrov Rossi Santos Weber Zeman"
)
ADJECTIVES = (
    "Amber Bright Copper Distant Early Frozen Golden Hidden Ivory Jagged "
    "Little Misty Narrow Open Quiet Silver Tall Upper Velvet Winter"
)
TRADES = (
    "Bakery Brewery Foods Foundry Glass Looms Mills Motors Optics Paints "
    "Paper Pottery Press Railways Shipyard Steel Textiles Timber Tools Watches"
)
SUBJECTS = (
    "Bridge Candle Door Feather Forest Garden Harbour Island Lantern Letter "
    "Mirror Mountain Orchard River Road Shadow Stone Storm Tower Window"
)
SHARES = {"train": 8, "validation": 1, "test": 1}
Names = dict[str, Sequence[str]]


def people() -> Names:
    """Return 320, 40 and 40 names by split, the same for every seed: `{"train": ["Anna Berg", ...],
    ...}`.

    No name is in two splits, but first names and surnames occur in all. Companies and books work
    the same way.
    """
    return _split(FIRST, LAST)


def companies() -> Names:
    """Return names of companies, such as "Amber Mills", as many as `people` returns."""
    return _split(ADJECTIVES, TRADES)


def books() -> Names:
    """Return titles of books, such as "Quiet Harbour", as many as `people` returns."""
    return _split(ADJECTIVES, SUBJECTS)


def _split(first: str, second: str) -> Names:
    names = [f"{one} {other}" for one, other in product(first.split(), second.split())]
    # not the experiment's seed: a test name of one seed must not be trained with another seed
    random.Random(0).shuffle(names)
    return shares(names, SHARES)
