from typing import Any

import pytest

from agentfly_core.recipes.shop.environment import Product, Shop
from agentfly_core.recipes.shop.rewards import bought
from agentfly_core.recipes.shop.tools import add_to_cart, checkout, lookup, search
from agentfly_core.records.trajectory import Ending, Observation, Problem, Score, Trajectory
from agentfly_core.testing.episodes import (
    episode_specs,
    play_all,
    rollout_spec,
    saying,
    scripted,
)

FACTS = {
    "products": {
        "a7": {"name": "red cup", "price": 3, "stock": 5},
        "b2": {"name": "red plate", "price": 4, "stock": 1},
        "c9": {"name": "blue cup", "price": 2, "stock": 9},
    },
    "order": {"a7": 2, "c9": 1},
}
BUY = Problem("buy-1", "Buy 2 red cups and 1 blue cup.", FACTS)


async def shopping(*replies: str, problem: Problem = BUY) -> Trajectory:
    rules = rollout_spec(
        search,
        lookup,
        add_to_cart,
        checkout,
        rewards=[bought],
        limits={Shop: 1},
        max_turns=len(replies),
    )
    sampler = scripted(saying(*replies))
    return (await play_all(episode_specs(problem), rules, sampler))[0][0]


async def test_the_right_order_over_several_turns_is_worth_one() -> None:
    trajectory = await shopping(
        "<search words=cup>",
        "<lookup key=a7>",
        "<add_to_cart key=a7 count=2>",
        "<add_to_cart key=c9>",
        "<checkout>",
    )
    assert trajectory.observations == (
        Observation("search", '{"a7": "red cup", "c9": "blue cup"}'),
        Observation("lookup", '{"name": "red cup", "price": 3, "stock": 5}'),
        Observation("add_to_cart", '{"a7": 2}'),
        Observation("add_to_cart", '{"a7": 2, "c9": 1}'),
        Observation("checkout", "Ordered for 8."),
    )
    assert trajectory.ending is Ending.TERMINAL
    assert trajectory.observed == {"bought": Score(1.0, {"lines": 1.0})}


@pytest.mark.parametrize(
    ("replies", "lines"),
    [
        (["<add_to_cart key=a7 count=2>", "<checkout>"], 0.5),
        (["<add_to_cart key=a7 count=3>", "<add_to_cart key=c9>", "<checkout>"], 0.5),
        (
            ["<add_to_cart key=a7 count=2><add_to_cart key=c9><add_to_cart key=b2>", "<checkout>"],
            1.0,
        ),
        (["<add_to_cart key=a7 count=2><add_to_cart key=c9>", "done"], 0.0),
    ],
)
async def test_any_other_order_is_worth_nothing(replies: list[str], lines: float) -> None:
    assert (await shopping(*replies)).observed == {"bought": Score(0.0, {"lines": lines})}


async def test_wrong_calls_are_reported_and_change_nothing() -> None:
    trajectory = await shopping(
        "<lookup key=z1><add_to_cart key=z1>",
        "<add_to_cart key=a7 count=0><add_to_cart key=a7 count=6><checkout>",
        "<add_to_cart key=b2><add_to_cart key=b2>",
        "done",
    )
    assert [(o.content, o.error) for o in trajectory.observations] == [
        ("No product has the key 'z1'.", True),
        ("No product has the key 'z1'.", True),
        ("The count is 0, expected 1 or more.", True),
        ("Only 5 of a7 are left.", True),
        ("The cart is empty.", True),
        ('{"b2": 1}', False),
        ("Only 0 of b2 are left.", True),
    ]


async def test_facts_without_a_shop_fail_the_episode() -> None:
    trajectory = await shopping("<checkout>", problem=Problem("buy-2", "Buy!", {}))
    assert trajectory.ending is Ending.FAILED
    assert "Shop is not ready for problem 'buy-2': KeyError: 'products'" in str(trajectory.error)


async def test_a_reset_shop_has_an_empty_cart() -> None:
    shop = Shop()
    await shop.reset(BUY)
    shop.order, shop.cart = {"a7": 5}, {"c9": 1}
    await shop.reset(BUY)
    assert (shop.cart, shop.order, shop.lookup("a7")) == ({}, None, Product("red cup", 3, 5))


def test_the_schema_hides_the_shop() -> None:
    schemas: list[Any] = [
        one.schema.parameters["properties"] for one in (search, lookup, add_to_cart, checkout)
    ]
    assert [list(properties) for properties in schemas] == [
        ["words"],
        ["key"],
        ["key", "count"],
        [],
    ]
    assert schemas[2]["count"] == {"type": "integer", "default": 1, "description": "how many"}
