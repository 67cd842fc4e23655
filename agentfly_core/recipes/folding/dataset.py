"""Problems in which the entries of a ledger must be added up page by page.

The tool's result for each page names the next page.
"""

import math
import random
from collections import defaultdict
from collections.abc import Sequence
from itertools import product

from agentfly_core import Problem, generated
from agentfly_core.datasets.splitting import shares

NUMBERS, ENTRIES = range(10, 100), range(10, 100)
LedgerPage = tuple[int, int]
"""A page of a ledger: its page number, and its entry (the number to add)."""


@generated
def ledgers(
    seed: int, train: int, validation: int, test: int, shortest: int = 6, longest: int = 8
) -> dict[str, list[Problem]]:
    """Make problems for each split, such as

        Problem(
            "ledger-47:12-83:55-20:31",
            "What do the pages from 47 on add up to?",
            {"answer": "98", "pages": [[47, 12], [83, 55], [20, 31]]},
        )

    A problem is a ledger of `shortest` to `longest` pages with one entry each. The fact `pages`
    lists the page numbers with their entries. A page with a certain number and entry, such as
    [47, 12], occurs in only one split. Raises ValueError if `shortest` is below 2, `longest` is
    above 90, or `longest` is below `shortest`. Also raises ValueError if the pages of a split have
    too few different page numbers for the requested ledgers.
    """
    if not 2 <= shortest <= longest <= len(NUMBERS):
        raise ValueError(
            f"A ledger cannot have {shortest} to {longest} pages, expected 2 <= shortest <= "
            f"longest <= {len(NUMBERS)}."
        )
    sizes = {"train": train, "validation": validation, "test": test}
    draw = random.Random(seed)
    pages = list(product(NUMBERS, ENTRIES))
    draw.shuffle(pages)
    lengths = range(shortest, longest + 1)
    return {
        split: _ledgers(draw, share, lengths, sizes[split], split)
        for split, share in shares(pages, sizes).items()
    }


def _ledgers(
    draw: random.Random, pages: Sequence[LedgerPage], lengths: range, size: int, split: str
) -> list[Problem]:
    entries = defaultdict[int, list[int]](list)
    for number, entry in pages:
        entries[number].append(entry)
    shortest, longest = lengths[0], lengths[-1]
    # twice as many ledgers as needed must exist, because repeated draws are discarded
    if size and (len(entries) < longest or math.perm(len(entries), shortest) < 2 * size):
        raise ValueError(
            f"data.{split} requests {size} different ledgers, but the split has only "
            f"{len(entries)} page numbers. Lower data.{split}, `shortest` or `longest`, or lower "
            "the sizes of the other splits."
        )
    made: dict[str, Problem] = {}
    while len(made) < size:
        numbers = draw.sample(sorted(entries), draw.choice(lengths))
        read = [(number, draw.choice(entries[number])) for number in numbers]
        name = "-".join(["ledger", *(f"{number}:{entry}" for number, entry in read)])
        total = sum(entry for _, entry in read)
        facts = {"answer": str(total), "pages": [list(page) for page in read]}
        made[name] = Problem(name, f"What do the pages from {numbers[0]} on add up to?", facts)
    return list(made.values())
