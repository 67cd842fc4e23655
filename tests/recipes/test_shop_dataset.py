"""Generated shopping lists."""

import pytest

from agentfly_core.recipes.shop.dataset import shop
from agentfly_core.recipes.shop.environment import Shop
from agentfly_core.recipes.shop.tools import add_to_cart, checkout, search


def test_prompts_use_names_and_orders_use_keys() -> None:
    for problem in shop(0, 50, 5, 5, products=6)["train"]:
        products, order = problem.facts["products"], problem.facts["order"]
        lines = [f"{count} {products[key]['name']}" for key, count in order.items()]
        assert problem.prompt == f"Buy {lines[0]} and {lines[1]}."
        assert problem.id == f"{lines[0]} {lines[1]}".replace(" ", "-")
        assert len(products) == 6


async def test_every_order_can_be_bought() -> None:
    for problem in shop(0, 50, 5, 5)["train"]:
        place = Shop()
        await place.reset(problem)
        for key, count in problem.facts["order"].items():
            assert list(await search.function(place.lookup(key).name, shop=place)) == [key]
            await add_to_cart.function(key, count, shop=place)
        await checkout.function(shop=place)
        assert place.order == problem.facts["order"]


def test_no_two_problems_have_the_same_wish() -> None:
    splits = shop(0, 10_000, 340, 1000)
    assert {name: len(problems) for name, problems in splits.items()} == {
        "train": 10_000,
        "validation": 340,
        "test": 1000,
    }
    assert len({problem.prompt for problems in splits.values() for problem in problems}) == 11_340


def test_the_seed_decides_the_problems() -> None:
    assert shop(3, 20, 5, 5) == shop(3, 20, 5, 5)
    assert shop(3, 20, 5, 5) != shop(4, 20, 5, 5)


def test_too_many_problems_are_refused() -> None:
    with pytest.raises(ValueError, match=r"11341 .* 11340"):
        shop(0, 11_339, 1, 1)


def test_a_shop_with_too_few_products_is_refused() -> None:
    with pytest.raises(ValueError, match=r"data\.products is 1, .*36"):
        shop(0, 5, 5, 5, products=1)


def test_a_split_may_be_empty() -> None:
    made = shop(seed=0, train=5, validation=5, test=0)
    assert {name: len(problems) for name, problems in made.items()} == {
        "train": 5,
        "validation": 5,
        "test": 0,
    }
