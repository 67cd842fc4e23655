"""Problems of the text shop: wishes for a kind of product, its options and a price limit."""

import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, product
from typing import Annotated

from pydantic import Field

from agentfly_core import Problem, generated
from agentfly_core.datasets.names import SHARES
from agentfly_core.datasets.splitting import sample, shares
from agentfly_core.recipes.text_shop.environment import (
    CATEGORIES,
    DEPARTMENTS,
    OPTIONS,
    CatalogueProduct,
    catalogue,
)
from agentfly_core.recipes.text_shop.rewards import Wish

WishKind = tuple[str, ...]
"""A category and wanted attributes: `("shirt", "cotton", "slim")`."""
ROOM = (10, 20, 30)
"""A wish's price limit is the product's price, rounded down to tens, plus one of these amounts.

For a price of $23, the limits are $30, $40 and $50.
"""


@generated
def text_shop(
    seed: int,
    train: int,
    validation: int,
    test: int,
    products: Annotated[int, Field(ge=1000, le=9000)] = 1000,
    catalogues: Annotated[int, Field(ge=1, le=256)] = 1,
    attributes: Annotated[int, Field(ge=1, le=3)] = 2,
    options: Annotated[int, Field(ge=0, le=2)] = 1,
) -> dict[str, list[Problem]]:
    """Make problems for each split. A problem is a wish for a product of a catalogue:

        Problem("7-slim-cotton-shirt-red-40", "Buy a slim cotton shirt (red) for at most $40.", {
            "catalogue": {"seed": 7, "products": 1000},
            "wish": {"category": "shirt", "attributes": ["cotton", "slim"], "options": ["red"],
                     "limit": 40},
            "department": "clothing",
        })

    `catalogues` is the number of catalogues, and `products` is the number of products in each
    catalogue. All catalogues have about the same number of problems. With only one catalogue, a
    model could memorise the ids of products. `attributes` and `options` are the numbers of
    attributes and options in each wish. The catalogue always has a product that fits the wish. All
    wishes for the same category and attributes, such as "slim cotton shirt", are in the same split.
    The split of these wishes does not depend on the seed. Raises ValueError if more problems are
    requested than exist.
    """
    sizes = {"train": train, "validation": validation, "test": test}
    draw, problems = random.Random(seed), dict[str, list[Problem]]()
    for split, kinds in kinds_of(attributes).items():
        problems[split] = []
        for number in range(catalogues):
            # catalogues of two seeds differ
            shop = {"seed": seed * catalogues + number, "products": products}
            size = len(range(number, sizes[split], catalogues))
            goods = catalogue(shop["seed"], products).products.values() if size else ()
            fitting = [one for one in goods if _kind(one, attributes) in kinds]
            # a dictionary, because the order of a set differs between processes
            wishes = dict.fromkeys(_wishes(fitting, attributes, options))
            drawn = sample(draw, list(wishes), size, split)
            problems[split] += [_problem(shop, wish) for wish in drawn]
    return problems


def kinds_of(attributes: int) -> Mapping[str, frozenset[WishKind]]:
    """Return the kinds of wishes (requests for a product) in each split.

    A kind is a category and its attributes, such as `("shirt", "cotton", "slim")`. `attributes` is
    the number of attributes. A kind occurs in only one split, but the same words occur in all
    splits.
    """
    kinds = [
        (category, *chosen)
        for category, department in CATEGORIES.items()
        for chosen in product(*DEPARTMENTS[department][1 : 1 + attributes])
    ]
    # not the seed of the problems, because splits must be the same for all seeds
    random.Random(0).shuffle(kinds)
    return {split: frozenset(share) for split, share in shares(kinds, SHARES).items()}


def _problem(shop: Mapping[str, int], wish: Wish) -> Problem:
    title = " ".join((*reversed(wish.attributes), wish.category))
    chosen = f" ({', '.join(wish.options)})" if wish.options else ""
    article = "an" if title.startswith(tuple("aeiou")) else "a"
    prompt = f"Buy {article} {title}{chosen} for at most ${wish.limit}."
    words = (str(shop["seed"]), *title.split(), *wish.options, str(wish.limit))
    lists = {"attributes": list(wish.attributes), "options": list(wish.options)}
    fields = {"category": wish.category, **lists, "limit": wish.limit}
    facts = {"catalogue": shop, "wish": fields, "department": CATEGORIES[wish.category]}
    return Problem("-".join(words), prompt, facts)


def _kind(one: CatalogueProduct, attributes: int) -> WishKind:
    return one.category, *one.attributes[:attributes]


def _wishes(products: Sequence[CatalogueProduct], attributes: int, options: int) -> Iterator[Wish]:
    for one in products:
        category, *required = _kind(one, attributes)
        offered = (one.options[kind] for kind in islice(OPTIONS, options))
        for chosen, room in product(product(*offered), ROOM):
            yield Wish(category, tuple(required), chosen, one.price // 10 * 10 + room)
