"""Treasure hunts, their oracle and their baselines."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from agentfly_core.authoring.tool import ToolError
from agentfly_core.config import loading
from agentfly_core.experiment import checks
from agentfly_core.experiment.task import import_tasks
from agentfly_core.inference.random_policy import random_policy
from agentfly_core.inference.scripted import ScriptedPolicy
from agentfly_core.recipes.textworld.dataset import Hunt, hunted, hunts, textworld
from agentfly_core.recipes.textworld.demonstrations import BACK, Map, lying, short
from agentfly_core.recipes.textworld.demonstrations import textworld as oracle
from agentfly_core.recipes.textworld.environment import TextWorld, World, _textworld, plain_text
from agentfly_core.recipes.textworld.tools import OVER, do
from agentfly_core.records.trajectory import Problem
from agentfly_core.rewards.environment_return import environment_return
from tests.support import task_checks
from tests.support.project import ROOT

pytest.importorskip("textworld")
TURNS = 12


@pytest.fixture(autouse=True, scope="module")
def games(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Compile the games of these tests in a temporary folder."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("games")
        patch.setattr("agentfly_core.recipes.textworld.environment.GAMES", folder)
        yield


@pytest.fixture(scope="module")
def tokenizer(nano: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(nano)


@pytest.fixture(scope="module")
def few(games: None) -> dict[str, list[Problem]]:
    return textworld(0, 1, 0, 1, worlds=8)


async def solved(
    policy: ScriptedPolicy, tokenizer: PreTrainedTokenizerBase, problems: Sequence[Problem]
) -> float:
    played = await task_checks.played(
        problems, policy, [do], tokenizer, [TextWorld], max_turns=TURNS
    )
    return await task_checks.success(played, environment_return)


async def test_the_oracle_solves_each_split(
    tokenizer: PreTrainedTokenizerBase, few: dict[str, list[Problem]]
) -> None:
    (one,), (other,) = few["train"], few["test"]
    assert await solved(oracle([], 0, 0.0), tokenizer, [one, other]) == 1.0
    assert hunted(one.prompt)[0] != hunted(other.prompt)[0]
    assert one.facts["world"] != other.facts["world"]
    assert await solved(random_policy, tokenizer, [one, other]) == 0.0
    assert textworld(0, 1, 0, 1, worlds=8) == few


@pytest.mark.long
async def test_the_oracle_solves_all_hunts_and_chance_almost_none(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    hundred = textworld(7, 0, 0, 100)["test"]
    assert await solved(oracle([], 0, 0.0), tokenizer, hundred) >= 0.95
    assert await solved(oracle([], 0, 1.0), tokenizer, hundred) <= 0.1


def test_worlds_made_in_parallel_equal_worlds_made_in_order() -> None:
    worlds = [World(seed, rooms=4, things=4) for seed in range(8)]
    _textworld.cache_clear()
    with ThreadPoolExecutor(8) as pool:
        places = list(pool.map(World.place, worlds))
    assert places == [world.place() for world in worlds]


@pytest.mark.long
def test_the_best_fixed_walk_solves_at_most_15_percent() -> None:
    walks = [walk for moves in range(1, 6) for walk in itertools.product(BACK, repeat=moves)]
    best = max(walks, key=partial(found_by, begun=beginnings(range(64))))
    assert found_by(best, beginnings(range(64, 164))) <= 0.15


def test_a_hunt_starts_at_the_given_distance() -> None:
    world = World(4711, rooms=6, things=8)
    place = world.place()
    ways = {start: place.ways(start) for start in place.exits}
    for moves in (1, 3):
        chosen = hunts(world, moves)
        begun = {tuple(way): start for start, way in ways[place.first].items()}
        assert min(len(ways[begun[hunt.way]][hunt.room]) for hunt in chosen) == moves
    assert place.ways("forgotten attic")["silent study"] == ["south", "west", "north"]


def beginnings(seeds: Iterable[int]) -> list[tuple[Mapping[str, Mapping[str, str]], str, str]]:
    """Exits, start and room of the treasure, for each hunt of these worlds."""
    places = [World(seed, rooms=8, things=8).place() for seed in seeds]
    return [
        (place.exits, start, room)
        for place in places
        for room in place.lying.values()
        for start in place.exits
        if start != room
    ]


def found_by(
    walk: Sequence[str], begun: Sequence[tuple[Mapping[str, Mapping[str, str]], str, str]]
) -> float:
    """The share of hunts in which a walk ends in the room of the treasure."""
    wins = 0
    for exits, here, room in begun:
        for direction in walk:
            here = exits[here].get(direction, here)
        wins += here == room
    return wins / len(begun)


async def begun(problem: Problem) -> TextWorld:
    game = TextWorld()
    await game.reset(problem)
    return game


def near(room: str, thing: str) -> Problem:
    """A hunt of world 4711 that starts in the room of the treasure."""
    world = World(4711, rooms=6, things=8)
    place = world.place()
    return Hunt(world, tuple(place.ways(place.first)[room]), thing, room).problem()


@pytest.mark.parametrize(
    ("command", "won"),
    [
        ("take candy bar", True),
        ("take chilled candy bar", True),
        ("take copper passkey", False),
        ("take chilled candy bar and copper passkey", False),
        ("take moon", False),
    ],
)
async def test_only_the_right_object_wins(command: str, won: bool) -> None:
    game = await begun(near("ugly closet", "chilled candy bar"))
    assert game.do("examine candy bar") and not game.over
    game.do(command)
    assert (game.won, game.over) == (won, True)
    with pytest.raises(ToolError, match=OVER):
        await do("look", textworld=game)
    await game.close()


async def test_take_needs_the_name_of_an_object() -> None:
    game = await begun(near("silent study", "rusty key"))
    assert "You pick up the rusty key from the ground." in game.do("take")
    assert (game.won, game.over) == (False, True)
    await game.close()


async def test_a_restored_snapshot_gives_the_same_answers(
    few: dict[str, list[Problem]],
) -> None:
    (problem,) = few["train"]
    first, another = await begun(problem), await begun(problem)
    commands = [f"go {direction}" for direction in ("north", "east", "south", "west")] * 2
    first.do("inventory")
    snapshot = await first.snapshot()
    once = [first.do(command) for command in commands]
    for game in (first, another):
        await game.restore(snapshot)
        assert [game.do(command) for command in commands] == once
        await game.close()


@pytest.mark.parametrize(
    "command",
    [
        "",
        "save",
        "restart",
        "quit",
        "look. save",
        "look then save",
        "look, save",
        "go\x00 east",
        "say hi",
        "drop old key",
    ],
)
async def test_a_command_outside_of_the_game_is_refused(
    command: str, few: dict[str, list[Problem]]
) -> None:
    game = await begun(few["train"][0])
    with pytest.raises(ToolError, match="begins with one of go, "):
        game.do(command)
    await game.close()


async def test_a_hunt_with_another_beginning_is_refused(
    few: dict[str, list[Problem]],
) -> None:
    facts = {**few["train"][0].facts, "seen": "-= Moon =-"}
    with pytest.raises(ValueError, match=r"'-= Moon =-'\. Prepare"):
        await begun(replace(few["train"][0], facts=facts))


def test_worlds_with_too_few_hunts_are_refused() -> None:
    with pytest.raises(ValueError, match=r"data\.train is 1, but 8 worlds have 0 "):
        textworld(0, 1, 0, 0, worlds=8, rooms=2, moves=9)


def test_an_unknown_prompt_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'Buy a cup\.'"):
        hunted("Buy a cup.")


def test_the_oracle_tries_the_nearest_new_exit() -> None:
    seen = Map()
    seen.see("-= Bar =-\nThere are exits to the north and the east.")
    assert (seen.here, seen.way()) == ("Bar", "north")
    seen.see("-= Wine Cellar =-\nThere is an exit to the south.", "north")
    assert (seen.here, seen.way()) == ("Wine Cellar", "south")
    seen.see("You can't go that way.", "west")
    assert seen.here == "Wine Cellar"
    seen.see("-= Bar =-\nThere are exits to the north and the east.", "south")
    assert seen.way() == "east"
    seen.see("-= Attic =-\nThere is an exit to the west.", "east")
    assert seen.way() == ""


def test_a_unique_last_word_names_an_object() -> None:
    view = "There is an old key, a tin of iron bars and a new key on the floor."
    assert lying(view) == ["old key", "tin of iron bars", "new key"]
    assert (short("old key", view), short("tin of iron bars", view)) == ("old key", "bars")


def test_observations_have_no_status_line() -> None:
    text = "\n\n-= Bar =-\nIt is  a bar.\n\n\n\n>      -= Bar =-0/5"
    assert plain_text(text) == "-= Bar =-\nIt is a bar."


def test_the_experiment_names_its_gpl_dependency(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    settings = loading.read("textworld").settings
    (remark,) = checks.remarks(settings.model, import_tasks(settings))
    assert remark == (
        "TextWorld: the package textworld installs jericho, which is under the GNU General Public "
        "License."
    )
