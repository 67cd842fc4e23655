"""Generated questions on the databases of offices, with their gold plans."""

import math
import re
import sqlite3
from itertools import pairwise

import pytest

from agentfly_core.recipes.tptu.agents import OneStep
from agentfly_core.recipes.tptu.dataset import KINDS, PARTS, held_out, results, script
from agentfly_core.recipes.tptu.demonstrations import planner
from agentfly_core.recipes.tptu.plans import written
from agentfly_core.records.trajectory import Problem
from agentfly_core.testing import play, problems_of, rollout_spec

SEED = 901
SPLITS = problems_of(
    "agentfly_core.recipes.tptu.dataset:office_plans", seed=SEED, train=50, validation=10, test=50
)
PROBLEMS = [problem for split in SPLITS.values() for problem in split]
CALCULATED = {
    "sum": sum,
    "difference": lambda values: values[0] - sum(values[1:]),
    "product": math.prod,
    "square": lambda values: values[0] ** 2,
}


def table(problem: Problem, name: str) -> list[tuple]:
    [rows] = results(problem.facts["database"], [f"SELECT * FROM {name}"])
    return rows


def value(problem: Problem, phrase: str) -> int:
    """The value of a sub-question, computed in Python from the tables."""
    people, orders = table(problem, "people"), table(problem, "orders")
    if match := re.fullmatch(r"amount of order (\d+)", phrase):
        return next(amount for number, _, amount in orders if number == int(match[1]))
    part, _, name = phrase.partition(" of ")
    if part == "number":
        return len([0 for _, person, _ in orders if person == name.removeprefix("orders of ")])
    amounts = {"spending": sum, "largest order": max}
    if part in amounts:
        return amounts[part](amount for _, person, amount in orders if person == name)
    staff = {person for person, company in people if company == name}
    if part == "staff":
        return len(staff)
    return sum(amount for _, person, amount in orders if person in staff)


def parts_of(problem: Problem) -> list[str]:
    steps = [step["subtask"] for step in problem.facts["plan"] if step["tool"] == "sql"]
    names = {text.partition("{}")[0]: part for part, (text, *_) in PARTS.items()}
    return [next(part for text, part in names.items() if step.startswith(text)) for step in steps]


@pytest.mark.parametrize("kind", ["one", "square", "two", "three", "branch"])
def test_answers_are_those_of_the_tables(kind: str) -> None:
    for problem in (one for one in PROBLEMS if one.facts["kind"] == kind):
        looked_up = [s["subtask"] for s in problem.facts["plan"] if s["tool"] == "sql"]
        values = [value(problem, phrase) for phrase in looked_up]
        operation = problem.facts["plan"][-1]["subtask"].partition(" of ")[0]
        right = values[-1] if kind in ("one", "branch") else CALCULATED[operation](values)
        assert problem.facts["answer"] == str(right)


def test_a_branch_follows_from_the_first_result() -> None:
    for problem in (one for one in PROBLEMS if one.facts["kind"] == "branch"):
        match = re.fullmatch(
            r"If the (.+) is above (-?\d+), what is the (.+), otherwise .+", problem.prompt
        )
        assert match
        above = value(problem, match[1]) > int(match[2])
        assert (problem.facts["plan"][1]["subtask"] == match[3]) == above


def test_no_constant_is_right_in_all_databases() -> None:
    for problem in PROBLEMS:
        worlds = [script(seed, problem.facts["entities"]) for seed in problem.facts["worlds"]]
        assert len(worlds) == 3
        for step in (one for one in problem.facts["plan"] if one["tool"] == "sql"):
            assert len({str(results(world, [step["code"]])) for world in worlds}) > 1


def test_test_problems_have_combinations_of_their_own() -> None:
    for split, problems in SPLITS.items():
        for problem in problems:
            parts = parts_of(problem)
            if len(parts) > 1 and problem.facts["kind"] != "branch":
                assert held_out(parts) == (split == "test")
    trained = {
        pair for p in SPLITS["train"] if len(parts_of(p)) > 1 for pair in pairwise(parts_of(p))
    }
    assert {first for first, _ in trained} == {second for _, second in trained} == {*PARTS}


def test_a_database_follows_from_its_seed_and_entities() -> None:
    entities = PROBLEMS[0].facts["entities"]
    assert script(4, entities) == script(4, entities) != script(5, entities)
    with pytest.raises(sqlite3.Error):
        results(script(4, entities), ["SELECT * FROM salaries"])


async def test_every_mistake_changes_the_plan() -> None:
    rules = rollout_spec(agent=OneStep(execute=False), max_tokens=10_000, max_model_len=100_000)
    problems = {one.facts["kind"]: one for one in PROBLEMS}
    assert problems.keys() == {*KINDS}
    for problem in problems.values():
        gold, plans = written(problem.facts["plan"]), set[str]()
        for seed in range(20):
            episode = await play(planner([problem], seed, 1.0), problem=problem, spec=rules)
            plans.add(episode.turns[0].reply.content)
        assert gold not in plans and len(plans) > 2
