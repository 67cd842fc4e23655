"""Generated folders, and what it takes to do with a shell what is asked for in them."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.datasets import terminal_demonstrations
from agentfly_core.datasets.players import filled
from agentfly_core.datasets.terminal import FAMILIES, HELD_OUT, LEARNED, PROMPTS, terminal
from agentfly_core.environments.workspace import Workspace
from agentfly_core.inference.random_policy import random_policy
from agentfly_core.inference.scripted import ScriptedPolicy
from agentfly_core.records.trajectory import Message, Observation, Problem, Trajectory
from agentfly_core.rewards.folder import expected_files
from agentfly_core.tools.shell import shell
from tests.support import tasks

ALL = tuple(FAMILIES)
HUNDRED = [terminal(seed, 0, 0, 10, ALL)["test"][seed % 10] for seed in range(100)]
ORACLE = terminal_demonstrations.terminal(HUNDRED, 0, 0.0)


@pytest.fixture(scope="module")
def tokenizer(nano: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(nano)


async def done(
    policy: ScriptedPolicy, tokenizer: PreTrainedTokenizerBase, problems: int = 100
) -> list[Trajectory]:
    chosen = HUNDRED[:problems]
    return await tasks.played(chosen, policy, [shell], tokenizer, [Workspace], [expected_files])


def changes(problem: Problem) -> Problem:
    """The problem with what is to be changed as its answer."""
    files, expected = problem.facts["files"].items(), problem.facts["expected"].items()
    changed = [sorted(expected - files), sorted(files - expected)]
    return replace(problem, facts={**problem.facts, "answer": json.dumps(changed)})


def test_every_family_asks_for_a_change_of_files_that_its_prompt_does_not_name_in_full() -> None:
    assert Counter(problem.facts["family"] for problem in HUNDRED) == dict.fromkeys(ALL, 10)
    for problem in HUNDRED:
        assert problem.facts["files"] != problem.facts["expected"]
        assert not [
            name for name in problem.facts["files"].keys() - {"plan.txt"} if name in problem.prompt
        ]


def test_the_ten_families_are_eight_to_learn_and_two_that_are_held_out() -> None:
    assert (len(LEARNED), len(HELD_OUT)) == (8, 2)
    assert {*LEARNED, *HELD_OUT} == FAMILIES.keys()
    assert FAMILIES.keys() == PROMPTS.keys() == terminal_demonstrations.PLANS.keys()
    assert [p.facts["family"] for p in terminal(0, 8, 0, 8)["train"]] == [*LEARNED]


def test_a_prompt_says_what_its_family_is_about() -> None:
    for problem in HUNDRED[:10]:
        family, asked = filled(problem.prompt, PROMPTS, "terminal")
        assert PROMPTS[family].format(**asked) == problem.prompt
        assert family == problem.facts["family"]


def test_no_two_splits_share_a_name_under_any_seeds() -> None:
    names: dict[str, set[str]] = {"train": set(), "validation": set(), "test": set()}
    for seed in (0, 1):
        for split, problems in terminal(seed, 100, 50, 50, ALL).items():
            for problem in problems:
                names[split] |= {*re.findall(r"[a-z]+-[a-z]+", json.dumps(problem.facts))}
    assert all(len(found) > 70 for found in names.values())
    for one, other in combinations(names.values(), 2):
        assert not one & other


def test_the_same_seed_makes_the_same_problems_and_another_seed_others() -> None:
    assert terminal(3, 16, 2, 2) == terminal(3, 16, 2, 2)
    ids = [
        {p.id for problems in terminal(seed, 16, 2, 2).values() for p in problems}
        for seed in (3, 4)
    ]
    assert (len(ids[0]), len(ids[1]), ids[0] & ids[1]) == (20, 20, set())


def test_a_change_that_looks_at_no_folder_is_seldom_right() -> None:
    seen = [changes(problem) for problem in terminal(1000, 1000, 0, 0, ALL)["train"]]
    asked = [changes(problem) for problem in HUNDRED]
    assert tasks.best_constant(asked) <= 0.02
    assert tasks.best_unread(seen, asked, "family") <= 0.02


@pytest.mark.usefixtures("sandbox")
@pytest.mark.parametrize(
    ("spoilt", "solved"),
    [(0.0, 1.0), (1.0, 0.0)],
)
async def test_two_commands_or_three_do_what_each_family_asks_for_unless_they_are_spoilt(
    spoilt: float, solved: float, tokenizer: PreTrainedTokenizerBase
) -> None:
    policy = terminal_demonstrations.terminal(HUNDRED, 0, spoilt)
    played = await done(policy, tokenizer, 10)
    assert tasks.observed_success(played, expected_files) == solved
    assert {len(trajectory.turns) for trajectory in played} <= {2, 3, 4}


@pytest.mark.long
@pytest.mark.usefixtures("sandbox")
async def test_the_oracle_solves_a_hundred_from_what_it_reads_and_none_from_another_folder(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    played = await done(ORACLE, tokenizer)
    assert tasks.observed_success(played, expected_files) == 1.0
    assert not any(o.error for trajectory in played for o in trajectory.observations)
    blind = await done(reading_others(played), tokenizer)
    assert tasks.observed_success(blind, expected_files) <= 0.1


def reading_others(played: list[Trajectory]) -> ScriptedPolicy:
    """The oracle, that reads what was printed for the next problem of the same family."""
    printed: Mapping[str, tuple[Observation, ...]] = {
        one.problem.id: other.observations
        for one, other in zip(played, [*played[10:], *played[:10]], strict=True)
    }

    async def policy(conversation: Conversation) -> str | Message:
        number = len([m for m in conversation.messages if isinstance(m, Observation)])
        messages = printed[conversation.problem.id][:number]
        return await ORACLE(replace(conversation, messages=messages))

    return policy


@pytest.mark.long
@pytest.mark.usefixtures("sandbox")
@pytest.mark.parametrize("policy", [random_policy, tasks.wanderer])
async def test_random_commands_solve_none(
    policy: ScriptedPolicy, tokenizer: PreTrainedTokenizerBase
) -> None:
    assert tasks.observed_success(await done(policy, tokenizer), expected_files) == 0.0


@pytest.mark.long
@pytest.mark.usefixtures("sandbox")
async def test_the_share_asked_for_is_spoilt(tokenizer: PreTrainedTokenizerBase) -> None:
    played = await done(terminal_demonstrations.terminal(HUNDRED, 0, 0.4), tokenizer)
    assert tasks.observed_success(played, expected_files) == pytest.approx(0.6, abs=0.12)


@pytest.mark.parametrize("printed", ["", "ls: No such file or directory", "plan.txt"])
async def test_an_oracle_that_reads_what_it_does_not_expect_breaks_off(printed: str) -> None:
    table = next(p for p in HUNDRED if p.facts["family"] == "total")
    conversation = Conversation(table, 0, 1, (Observation("shell", printed),), (), seed=0)
    assert await ORACLE(conversation) == "Done."


async def test_a_prompt_of_no_family_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Got 'Do it\.', expected a prompt of datasets.terminal"):
        filled("Do it.", PROMPTS, "terminal")


@pytest.mark.parametrize(
    ("families", "message"),
    [(("sum",), "families: got 'sum', expected some of rename"), ((), "families: got none")],
)
def test_a_family_that_there_is_not_is_refused(families: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        terminal(0, 1, 0, 1, families)
