"""Treasure hunts, and what it takes to find the treasure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from agentfly_core.authoring.tool import ToolError
from agentfly_core.config import loading
from agentfly_core.datasets.textworld import hunted, textworld
from agentfly_core.datasets.textworld_demonstrations import LIES, Map, random_hunter
from agentfly_core.datasets.textworld_demonstrations import textworld as oracle
from agentfly_core.environments.textworld import LOST, TextWorld, told
from agentfly_core.inference.random_policy import random_policy
from agentfly_core.inference.scripted import Policy
from agentfly_core.pipeline import checks
from agentfly_core.records.trajectory import Problem
from agentfly_core.rewards.environment_return import environment_return
from agentfly_core.runs.context import resolve
from agentfly_core.tools.textworld import OVER, do
from tests.support import tasks
from tests.support.project import ROOT

pytest.importorskip("textworld")
TURNS = 12


@pytest.fixture(autouse=True, scope="module")
def games(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The compiled games of these tests lie in a folder of their own."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("games")
        patch.setattr("agentfly_core.environments.textworld.GAMES", folder)
        yield


@pytest.fixture(scope="module")
def tokenizer(nano: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(nano)


@pytest.fixture(scope="module")
def few(games: None) -> dict[str, list[Problem]]:
    return textworld(0, 1, 0, 1)


async def solved(
    policy: Policy, tokenizer: PreTrainedTokenizerBase, problems: Sequence[Problem]
) -> float:
    played = await tasks.played(problems, policy, [do], tokenizer, [TextWorld], max_turns=TURNS)
    return await tasks.success(played, environment_return)


async def test_the_oracle_finds_what_it_reads_of_and_each_split_has_its_own(
    tokenizer: PreTrainedTokenizerBase, few: dict[str, list[Problem]]
) -> None:
    (one,), (other,) = few["train"], few["test"]
    assert await solved(oracle([], 0, 0.0), tokenizer, [one, other]) == 1.0
    assert hunted(one.prompt)[0] != hunted(other.prompt)[0]
    assert await solved(random_policy, tokenizer, [one, other]) == 0.0
    assert textworld(0, 1, 0, 1) == few


@pytest.mark.long
async def test_of_a_hundred_fresh_hunts_the_oracle_solves_all_and_chance_nearly_none(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    hundred = textworld(7, 0, 0, 100)["test"]
    assert await solved(oracle([], 0, 0.0), tokenizer, hundred) >= 0.95
    assert await solved(oracle([], 0, 1.0), tokenizer, hundred) <= 0.1
    assert await solved(random_hunter, tokenizer, hundred) <= 0.1


async def begun(problem: Problem) -> TextWorld:
    game = TextWorld()
    await game.reset(problem)
    return game


async def test_taking_another_thing_loses_and_ends_the_game(few: dict[str, list[Problem]]) -> None:
    (problem,) = few["train"]
    game, seen, lying = await begun(problem), Map(), set[str]()
    seen.see(problem.prompt)
    while (way := seen.way()) and not lying - {hunted(problem.prompt)[0]}:
        told = game.do(f"go {way}")
        seen.see(told, way)
        lying |= {*LIES.findall(told)}
    (other,) = lying - {hunted(problem.prompt)[0]}
    assert LOST in game.do(f"take {other}")
    assert (game.won, game.over) == (False, True)
    with pytest.raises(ToolError, match=OVER):
        await do("look", textworld=game)
    await game.close()


async def test_after_going_back_the_same_commands_are_answered_in_the_same_way(
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
    ],
)
async def test_what_does_not_act_in_the_game_is_no_command(
    command: str, few: dict[str, list[Problem]]
) -> None:
    game = await begun(few["train"][0])
    with pytest.raises(ToolError, match="A command begins with go, take, "):
        game.do(command)
    await game.close()


async def test_a_game_with_another_objective_is_refused(few: dict[str, list[Problem]]) -> None:
    facts = {**few["train"][0].facts, "objective": "Find the moon."}
    with pytest.raises(ValueError, match=r"does not ask: 'Find the moon\.'\. Prepare the"):
        await begun(replace(few["train"][0], facts=facts))


def test_rooms_without_such_a_way_are_refused() -> None:
    with pytest.raises(ValueError, match="Among 2 rooms hunts of 9 steps are not found"):
        textworld(0, 1, 0, 0, rooms=2, length=9)


def test_what_is_no_hunt_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Got 'Buy a cup\.', expected a treasure hunt"):
        hunted("Buy a cup.")


def test_the_way_leads_to_the_nearest_exit_that_was_not_tried() -> None:
    seen = Map()
    seen.see("-= Bar =-\nThere are exits to the north and the east.")
    assert (seen.here, seen.way()) == ("bar", "north")
    seen.see("-= Wine Cellar =-\nThere is an exit to the south.", "north")
    assert (seen.here, seen.way()) == ("wine cellar", "south")
    seen.see("You can't go that way.", "west")
    assert seen.here == "wine cellar"
    seen.see("-= Bar =-\nThere are exits to the north and the east.", "south")
    assert seen.way() == "east"
    seen.see("-= Attic =-\nThere is an exit to the west.", "east")
    assert seen.way() == ""


def test_what_a_game_says_is_told_without_its_status_line_and_last_question() -> None:
    text = "\n\n-= Bar =-\nIt is  a bar.\n\n\n\n>      -= Bar =-0/5"
    assert told(text) == "-= Bar =-\nIt is a bar."
    assert told("*** The End ***\n\nWould you like to RESTART, or QUIT?\n>") == "*** The End ***"


def test_the_experiment_says_that_it_needs_what_is_under_the_gpl(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    (told,) = checks.remarks(resolve(loading.read("textworld").science))
    assert told == (
        "TextWorld: the package textworld installs jericho, which is under the GNU General Public "
        "License."
    )
