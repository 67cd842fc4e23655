"""Going back to an earlier state of an environment."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from agentfly_core.authoring.environment import Environment
from agentfly_core.authoring.tool import Tool
from agentfly_core.environments.interpreter import Interpreter
from agentfly_core.environments.workspace import Workspace
from agentfly_core.recipes.babyai import tools as babyai
from agentfly_core.recipes.babyai.environment import BabyAI
from agentfly_core.recipes.office import tools as office
from agentfly_core.recipes.office.environment import Office
from agentfly_core.recipes.shop import tools as shop
from agentfly_core.recipes.shop.environment import Shop
from agentfly_core.recipes.text_shop import tools as text_shop
from agentfly_core.recipes.text_shop.environment import TextShop, catalogue
from agentfly_core.records.trajectory import Observation, Problem, ToolCall
from agentfly_core.tools import files

PRODUCTS = {"a7": {"name": "red cup", "price": 3, "stock": 5}}
TABLE = "CREATE TABLE orders (number, person, amount); INSERT INTO orders VALUES (482, 57, 36)"
PRODUCT = next(iter(catalogue(0, 1000).products.values()))
MISSION = {"level": "BabyAI-GoToRedBall-v0", "seed": 1, "mission": "go to the red ball"}


@dataclass(frozen=True)
class Way:
    """The calls before the snapshot, and the calls after it."""

    facts: dict[str, object]
    before: Sequence[tuple[Tool, dict[str, object]]]
    after: Sequence[tuple[Tool, dict[str, object]]]


WAYS: dict[type[Environment], Way] = {
    Shop: Way(
        {"products": PRODUCTS, "order": {}},
        [(shop.add_to_cart, {"key": "a7", "count": 2})],
        [
            (shop.search, {"words": "red"}),
            (shop.add_to_cart, {"key": "a7", "count": 3}),
            (shop.add_to_cart, {"key": "a7", "count": 1}),
            (shop.checkout, {}),
        ],
    ),
    TextShop: Way(
        {"catalogue": {"seed": 0, "products": 1000}},
        [(text_shop.browse, {"words": "coat"})],
        [
            (text_shop.browse, {"words": "coat", "page": 2}),
            (text_shop.view, {"product": PRODUCT.id}),
        ],
    ),
    Office: Way(
        {"database": TABLE},
        [(office.find, {"table": "orders", "column": "number", "value": 482})],
        [(office.count, {"table": "orders", "column": "number", "value": 482})],
    ),
    Workspace: Way(
        {"files": {"a.txt": "1"}},
        [(files.create_file, {"name": "b.txt", "text": "\ud800 2"})],
        [
            (files.edit_file, {"name": "a.txt", "old": "1", "new": "3"}),
            (files.undo_change, {}),
            (files.undo_change, {}),
            (files.list_files, {}),
            (files.undo_change, {}),
        ],
    ),
    BabyAI: Way(
        MISSION,
        [(babyai.act, {"action": "turn left"})],
        [(babyai.act, {"action": "go forward", "times": 2}) for _ in range(2)],
    ),
}


async def seen(
    environment: Environment, calls: Sequence[tuple[Tool, dict[str, object]]]
) -> list[tuple[Observation, str]]:
    """The answer and the new state of each call."""
    steps = []
    for tool, arguments in calls:
        answer = await tool.answer(ToolCall(tool.name, arguments), {type(environment): environment})
        steps.append((answer, environment.state_key()))
    return steps


@pytest.mark.parametrize("kind", WAYS)
async def test_a_restored_snapshot_gives_the_same_answers(
    kind: type[Environment],
) -> None:
    way = WAYS[kind]
    problem = Problem("p", "?", way.facts)
    first, another = kind(), kind()
    for environment in (first, another):
        await environment.reset(problem)
    await seen(first, way.before)
    snapshot, state = await first.snapshot(), first.state_key()
    once = await seen(first, way.after)
    for environment in (first, another):
        await environment.restore(snapshot)
        assert environment.state_key() == state
        assert await environment.snapshot() == snapshot
        assert await seen(environment, way.after) == once
        await environment.close()


async def test_a_purchase_can_be_undone() -> None:
    shop = TextShop()
    await shop.reset(Problem("p", "?", WAYS[TextShop].facts))
    before = await shop.snapshot()
    await text_shop.buy(PRODUCT.id, (PRODUCT.options["colour"][0],), shop=shop)
    bought, after = shop.purchase, await shop.snapshot()
    await shop.restore(before)
    assert shop.purchase is None
    await shop.restore(after)
    assert shop.purchase == bought


async def test_a_finished_mission_can_be_continued() -> None:
    room = BabyAI()
    await room.reset(Problem("p", "?", MISSION))
    before, seen = await room.snapshot(), room.view()
    while not room.over:
        room.act("turn left", 6)
    await room.restore(before)
    assert (room.over, room.solved, room.view()) == (False, False, seen)


async def test_an_environment_without_snapshots_raises() -> None:
    message = "Interpreter cannot go back to an earlier state; define snapshot"
    for going in (Interpreter().snapshot(), Interpreter().restore(b"")):
        with pytest.raises(NotImplementedError, match=message):
            await going
