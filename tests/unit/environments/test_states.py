"""The state keys of environments: stored before each reply and compared by GiGPO."""

from pathlib import Path

import pytest

from agentfly_core.authoring.environment import Environment
from agentfly_core.authoring.tool import tool
from agentfly_core.environments.database import Database
from agentfly_core.environments.workspace import Workspace
from agentfly_core.recipes.shop.environment import Shop
from agentfly_core.recipes.shop.tools import search
from agentfly_core.records.parquet import read_trajectories, write_trajectories
from agentfly_core.records.trajectory import Problem, Scored, Trajectory
from agentfly_core.rl.batch import pack
from agentfly_core.rl.outcomes import outcomes
from agentfly_core.testing.episodes import (
    ADD,
    episode_specs,
    play_all,
    rollout_spec,
    saying,
    scripted,
)


class Tower(Environment):
    async def reset(self, problem: Problem) -> None:
        self.floor = 0

    def state_key(self) -> str:
        return f"floor {self.floor}"


class Bell(Environment):
    async def reset(self, problem: Problem) -> None: ...


@tool
def climb(steps: int, *, tower: Tower, bell: Bell) -> str:
    """Go up, or down.

    Args:
        steps: how many floors
    """
    tower.floor += steps
    return "There."


async def climbing(*replies: str) -> Trajectory:
    sampler = scripted(saying(*replies))
    return (
        await play_all(episode_specs(ADD), rollout_spec(climb, limits={Tower: 1, Bell: 1}), sampler)
    )[0][0]


async def test_a_turn_has_the_state_of_its_reply() -> None:
    trajectory = await climbing("<climb steps=2>", "<climb steps=-1>", "99")
    assert [turn.state for turn in trajectory.turns] == ["floor 0", "floor 2", "floor 1"]


async def test_two_ways_to_a_floor_give_one_state() -> None:
    far, near = (
        await climbing("<climb steps=2>", "<climb steps=-1>", "99"),
        await climbing("<climb steps=1>", "99"),
    )
    paths = outcomes(
        [far, near],
        [Scored(far.id, {}, (), 1.0), Scored(near.id, {}, (), 0.0)],
        {},
        {},
        pack([far, near]),
    )
    assert paths.states == (("floor 0", "floor 2", "floor 1"), ("floor 0", "floor 1"))


async def test_states_are_stored(tmp_path: Path) -> None:
    trajectory, path = await climbing("<climb steps=2>", "99"), tmp_path / "t.parquet"
    write_trajectories(path, [trajectory])
    assert [turn.state for turn in read_trajectories(path)[0].turns] == ["floor 0", "floor 2"]


async def test_a_shop_state_is_its_page_and_its_cart() -> None:
    products = {
        key: {"name": name, "price": 1, "stock": 9}
        for key, name in (("a", "red cup"), ("b", "red pen"))
    }
    one, other = Shop(), Shop()
    for shop in (one, other):
        await shop.reset(Problem("p", "Buy!", {"products": products, "order": {"a": 1}}))
    assert one.state_key() == other.state_key()
    await search("red", shop=one)
    assert one.state_key() != other.state_key()
    other.lookup("b")
    assert one.state_key() != other.state_key()
    await search("red", shop=other)
    assert one.state_key() == other.state_key()
    one.cart, other.cart = {"a": 2}, {"a": 1}
    assert one.state_key() != other.state_key()
    other.cart = {"a": 2}
    assert one.state_key() == other.state_key()
    one.cart, one.order = {}, one.cart
    assert one.state_key() != other.state_key()


@pytest.mark.usefixtures("sandbox")
async def test_a_database_state_is_its_content() -> None:
    problem = Problem(
        "p", "?", {"database": "CREATE TABLE pens (name TEXT); INSERT INTO pens VALUES ('red')"}
    )
    one, other = Database(), Database()
    for database in (one, other):
        await database.reset(problem)
    await one.run("SELECT * FROM pens", most=9)
    assert one.state_key() == other.state_key()
    await one.run("INSERT INTO pens VALUES ('blue'), ('green')", most=9)
    await other.run("INSERT INTO pens VALUES ('blue')", most=9)
    assert one.state_key() != other.state_key()
    await other.run("INSERT INTO pens VALUES ('green')", most=9)
    assert one.state_key() == other.state_key()
    for database in (one, other):
        await database.close()


async def test_a_workspace_state_is_its_files() -> None:
    one, other = Workspace(), Workspace()
    for workspace in (one, other):
        await workspace.reset(Problem("p", "?", {"files": {"a.txt": "1"}}))
    one.write("a.txt", "2")
    assert one.state_key() != other.state_key()
    one.write("a.txt", "1")
    assert one.state_key() == other.state_key()
