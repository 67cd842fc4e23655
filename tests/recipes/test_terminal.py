"""Generated tasks for a shell, their oracle and their baselines."""

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
from agentfly_core.datasets.players import filled
from agentfly_core.environments.workspace import Workspace
from agentfly_core.inference.random_policy import random_policy
from agentfly_core.inference.scripted import ScriptedPolicy
from agentfly_core.recipes.terminal import demonstrations
from agentfly_core.recipes.terminal.dataset import FAMILIES, HELD_OUT, LEARNED, PROMPTS, terminal
from agentfly_core.records.trajectory import Message, Observation, Problem, Trajectory
from agentfly_core.rewards.folder import expected_files
from agentfly_core.tools.shell import shell
from tests.support import task_checks

ALL = tuple(FAMILIES)
HUNDRED = [terminal(seed, 0, 0, 10, ALL)["test"][seed % 10] for seed in range(100)]
ORACLE = demonstrations.terminal(HUNDRED, 0, 0.0)


@pytest.fixture(scope="module")
def tokenizer(nano: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(nano)


async def done(
    policy: ScriptedPolicy, tokenizer: PreTrainedTokenizerBase, problems: int = 100
) -> list[Trajectory]:
    chosen = HUNDRED[:problems]
    return await task_checks.played(
        chosen, policy, [shell], tokenizer, [Workspace], [expected_files]
    )


def changes(problem: Problem) -> Problem:
    """The changed files, as the answer of a problem."""
    files, expected = problem.facts["files"].items(), problem.facts["expected"].items()
    changed = [sorted(expected - files), sorted(files - expected)]
    return replace(problem, facts={**problem.facts, "answer": json.dumps(changed)})


def test_no_prompt_names_all_changed_files() -> None:
    assert Counter(problem.facts["family"] for problem in HUNDRED) == dict.fromkeys(ALL, 10)
    for problem in HUNDRED:
        assert problem.facts["files"] != problem.facts["expected"]
        assert not [
            name for name in problem.facts["files"].keys() - {"plan.txt"} if name in problem.prompt
        ]


def test_two_of_ten_families_are_held_out() -> None:
    assert (len(LEARNED), len(HELD_OUT)) == (8, 2)
    assert {*LEARNED, *HELD_OUT} == FAMILIES.keys()
    assert FAMILIES.keys() == PROMPTS.keys() == demonstrations.PLANS.keys()
    assert [p.facts["family"] for p in terminal(0, 8, 0, 8)["train"]] == [*LEARNED]


def test_a_prompt_describes_its_family() -> None:
    for problem in HUNDRED[:10]:
        family, values = filled(problem.prompt, PROMPTS, "recipes.terminal")
        assert PROMPTS[family].format(**values) == problem.prompt
        assert family == problem.facts["family"]


def test_splits_never_share_a_name() -> None:
    names: dict[str, set[str]] = {"train": set(), "validation": set(), "test": set()}
    for seed in (0, 1):
        for split, problems in terminal(seed, 100, 50, 50, ALL).items():
            for problem in problems:
                names[split] |= {*re.findall(r"[a-z]+-[a-z]+", json.dumps(problem.facts))}
    assert all(len(group) > 70 for group in names.values())
    for one, other in combinations(names.values(), 2):
        assert not one & other


def test_the_seed_decides_the_problems() -> None:
    assert terminal(3, 16, 2, 2) == terminal(3, 16, 2, 2)
    ids = [
        {p.id for problems in terminal(seed, 16, 2, 2).values() for p in problems}
        for seed in (3, 4)
    ]
    assert (len(ids[0]), len(ids[1]), ids[0] & ids[1]) == (20, 20, set())


def test_a_change_without_looking_is_rarely_right() -> None:
    seen = [changes(problem) for problem in terminal(1000, 1000, 0, 0, ALL)["train"]]
    wanted = [changes(problem) for problem in HUNDRED]
    assert task_checks.best_constant(wanted) <= 0.02
    assert task_checks.best_unread(seen, wanted, "family") <= 0.02


@pytest.mark.usefixtures("sandbox")
@pytest.mark.parametrize(
    ("spoilt", "solved"),
    [(0.0, 1.0), (1.0, 0.0)],
)
async def test_two_or_three_commands_solve_each_family(
    spoilt: float, solved: float, tokenizer: PreTrainedTokenizerBase
) -> None:
    policy = demonstrations.terminal(HUNDRED, 0, spoilt)
    played = await done(policy, tokenizer, 10)
    assert task_checks.observed_success(played, expected_files) == solved
    assert {len(trajectory.turns) for trajectory in played} <= {2, 3, 4}


@pytest.mark.long
@pytest.mark.usefixtures("sandbox")
async def test_the_oracle_solves_problems_from_their_own_folder_only(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    played = await done(ORACLE, tokenizer)
    assert task_checks.observed_success(played, expected_files) == 1.0
    assert not any(o.error for trajectory in played for o in trajectory.observations)
    blind = await done(reading_others(played), tokenizer)
    assert task_checks.observed_success(blind, expected_files) <= 0.1


def reading_others(played: list[Trajectory]) -> ScriptedPolicy:
    """The oracle with observations of the next problem of the same family."""
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
@pytest.mark.parametrize("policy", [random_policy, task_checks.wanderer])
async def test_random_commands_solve_no_problem(
    policy: ScriptedPolicy, tokenizer: PreTrainedTokenizerBase
) -> None:
    assert task_checks.observed_success(await done(policy, tokenizer), expected_files) == 0.0


@pytest.mark.long
@pytest.mark.usefixtures("sandbox")
async def test_the_given_share_is_spoilt(tokenizer: PreTrainedTokenizerBase) -> None:
    played = await done(demonstrations.terminal(HUNDRED, 0, 0.4), tokenizer)
    assert task_checks.observed_success(played, expected_files) == pytest.approx(0.6, abs=0.12)


@pytest.mark.parametrize("printed", ["", "ls: No such file or directory", "plan.txt"])
async def test_the_oracle_ends_after_an_unexpected_output(printed: str) -> None:
    table = next(p for p in HUNDRED if p.facts["family"] == "total")
    conversation = Conversation(table, 0, 1, (Observation("shell", printed),), (), seed=0)
    assert await ORACLE(conversation) == "Done."


async def test_a_prompt_without_a_family_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'Do it\.', .*recipes\.terminal"):
        filled("Do it.", PROMPTS, "recipes.terminal")


@pytest.mark.parametrize(
    ("families", "message"),
    [
        (("sum",), r"data\.families: got 'sum', expected some of rename"),
        ((), r"data\.families: got none"),
    ],
)
def test_an_unknown_family_is_refused(families: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        terminal(0, 1, 0, 1, families)
