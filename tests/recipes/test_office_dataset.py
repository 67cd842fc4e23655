"""Generated questions on a database, their oracle and their baselines."""

import json
import re
import sqlite3
from collections import Counter
from contextlib import closing
from itertools import combinations
from pathlib import Path

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.environments.database import Database
from agentfly_core.inference.random_policy import random_policy
from agentfly_core.inference.scripted import ScriptedPolicy
from agentfly_core.recipes.office import demonstrations
from agentfly_core.recipes.office.dataset import KINDS, office
from agentfly_core.recipes.office.demonstrations import PLANS, QUERIES, understood
from agentfly_core.recipes.office.environment import Office
from agentfly_core.recipes.office.tools import count, find, total
from agentfly_core.records.trajectory import Observation, Problem, Trajectory
from agentfly_core.rewards.exact import exact
from agentfly_core.tools.answer import answer
from agentfly_core.tools.sql import sql
from tests.support import task_checks

pytestmark = pytest.mark.slow

HUNDRED = [office(seed, 0, 0, 7)["test"][seed % 7] for seed in range(100)]
ASK = (find, count, total, answer)


@pytest.fixture(scope="module")
def tokenizer(nano: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(nano)


async def answered(policy: ScriptedPolicy, tokenizer: PreTrainedTokenizerBase) -> list[Trajectory]:
    return await task_checks.played(HUNDRED, policy, ASK, tokenizer, [Office])


@pytest.mark.parametrize("problem", HUNDRED[::7], ids=lambda problem: problem.prompt)
def test_a_question_names_values_of_its_database(problem: Problem) -> None:
    kind, value = understood(problem.prompt)
    assert (kind, len(PLANS[kind])) == (problem.facts["kind"], problem.facts["steps"])
    assert value in problem.facts["database"]


def test_the_answer_is_the_result_of_its_query() -> None:
    assert Counter(problem.facts["kind"] for problem in HUNDRED).keys() == KINDS.keys()
    for problem in HUNDRED:
        kind, value = understood(problem.prompt)
        with closing(sqlite3.connect(":memory:")) as opened:
            opened.executescript(problem.facts["database"])
            [(value_of_row,)] = opened.execute(QUERIES[kind].format(value)).fetchall()
        assert str(value_of_row) == problem.facts["answer"], problem.prompt


def test_splits_never_share_a_person_or_a_company() -> None:
    names: dict[str, set[str]] = {"train": set(), "validation": set(), "test": set()}
    for seed in (0, 1):
        for split, problems in office(seed, 100, 20, 20).items():
            for problem in problems:
                names[split] |= set(re.findall(r"'(\w+ \w+)'", problem.facts["database"]))
    assert all(len(group) > 50 for group in names.values())
    for one, other in combinations(names.values(), 2):
        assert not one & other


def test_the_seed_decides_the_problems() -> None:
    assert office(3, 14, 2, 2) == office(3, 14, 2, 2)
    ids = [
        {p.id for problems in office(seed, 14, 2, 2).values() for p in problems} for seed in (3, 4)
    ]
    assert (len(ids[0]), len(ids[1]), ids[0] & ids[1]) == (18, 18, set())


async def test_the_oracle_answers_from_its_observations(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    played = await answered(demonstrations.office(HUNDRED, 0, 0.0), tokenizer)
    assert await task_checks.success(played, exact) == 1.0
    assert not any(o.error for trajectory in played for o in trajectory.observations)
    for trajectory in played:
        assert len(trajectory.turns) == trajectory.problem.facts["steps"] + 1


async def test_random_calls_answer_almost_no_question(tokenizer: PreTrainedTokenizerBase) -> None:
    assert await task_checks.success(await answered(random_policy, tokenizer), exact) <= 0.02
    assert await task_checks.success(await answered(task_checks.wanderer, tokenizer), exact) <= 0.1


def test_an_answer_without_a_row_is_rarely_right() -> None:
    seen = office(1000, 1400, 0, 0)["train"]
    assert task_checks.best_constant(HUNDRED) <= 0.1
    assert task_checks.best_unread(seen, HUNDRED, "kind") <= 0.1


async def test_spoilt_episodes_have_valid_calls_and_are_all_wrong(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    played = await answered(demonstrations.office(HUNDRED, 0, 1.0), tokenizer)
    assert await task_checks.success(played, exact) == 0.0
    assert not any(o.error for trajectory in played for o in trajectory.observations)
    assert {len(trajectory.turns) for trajectory in played} == {1, 2, 3, 4, 5}


async def test_the_given_share_is_spoilt(tokenizer: PreTrainedTokenizerBase) -> None:
    played = await answered(demonstrations.office(HUNDRED, 0, 0.4), tokenizer)
    assert await task_checks.success(played, exact) == pytest.approx(0.6, abs=0.12)


@pytest.mark.usefixtures("sandbox")
@pytest.mark.parametrize(("spoilt", "solved"), [(0.0, 1.0), (1.0, 0.0)])
async def test_one_unspoilt_query_answers_each_question(
    spoilt: float, solved: float, tokenizer: PreTrainedTokenizerBase
) -> None:
    policy = demonstrations.sql(HUNDRED[:7], 0, spoilt)
    played = await task_checks.played(HUNDRED[:7], policy, [sql, answer], tokenizer, [Database])
    assert await task_checks.success(played, exact) == solved
    assert not any(o.error for trajectory in played for o in trajectory.observations)


async def test_an_oracle_without_a_row_answers_unknown() -> None:
    observations = (Observation("find", json.dumps([])),)
    conversation = Conversation(HUNDRED[1], 0, 1, observations, (), seed=0)
    oracle = demonstrations.office(HUNDRED, 0, 0.0)
    assert '"answer": "unknown"' in str(await oracle(conversation))


async def test_an_unknown_question_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'Who\?', .*recipes\.office"):
        understood("Who?")
