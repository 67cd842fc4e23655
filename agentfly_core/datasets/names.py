"""Made-up names of people, companies and books. Each name is in only one split."""

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
    """Return the names of people for each split: `{"train": ["Anna Berg", ...], ...}`.

    The splits train, validation and test have 320, 40 and 40 names. The result is always the same,
    because it does not depend on a seed. A full name is in only one split, but first names and
    surnames occur in all splits. The functions `companies` and `books` work in the same way.
    """
    return _split(FIRST, LAST)


def companies() -> Names:
    """Return the names of companies, such as "Amber Mills", for each split.

    The splits train, validation and test have 320, 40 and 40 names.
    """
    return _split(ADJECTIVES, TRADES)


def books() -> Names:
    """Return the titles of books, such as "Quiet Harbour", for each split.

    The splits train, validation and test have 320, 40 and 40 names.
    """
    return _split(ADJECTIVES, SUBJECTS)


def _split(first: str, second: str) -> Names:
    names = [f"{one} {other}" for one, other in product(first.split(), second.split())]
    # a fixed seed: with the experiment's seed, a test name of one run could be trained in another
    random.Random(0).shuffle(names)
    return shares(names, SHARES)
