"""Scores of plans: gold and damaged plans, equivalent and hard-coded SQL, unreadable replies."""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest

from agentfly_core.authoring.scoring import score
from agentfly_core.recipes.tptu.agents import FINISH
from agentfly_core.recipes.tptu.dataset import results
from agentfly_core.recipes.tptu.plans import SubTask, filled, parsed, written
from agentfly_core.recipes.tptu.rewards import planning, sql_accuracy
from agentfly_core.records.trajectory import Message, Problem
from agentfly_core.testing import problems_of, trajectory, turn
from tests.support.office_queries import EQUIVALENT

SEED = 902
PROBLEMS = problems_of(
    "agentfly_core.recipes.tptu.dataset:office_plans", seed=SEED, train=50, validation=1, test=1
)["train"]
LONG = [problem for problem in PROBLEMS if len(problem.facts["plan"]) > 2]
PERFECT = {"format": 1.0, "order_lcs": 1.0, "pairs": 1.0, "over_use": 0.0}


async def rewards(problem: Problem, plan: str, inputs: Sequence[str] = ()) -> dict[str, float]:
    """The rewards of an episode with a plan, the inputs of its tools, and the right answer."""
    planner = trajectory(
        turn([1], {2: 0.0}, read=[Message("user", problem.prompt)], reply=plan),
        turn([1], {2: 0.0}, read=[Message("user", FINISH)], reply=problem.facts["answer"]),
        problem=problem,
        name="planner",
        episode="e",
        answered=problem.facts["answer"],
    )
    written_inputs = [turn([1], {2: 0.0}, reply=text, context=n) for n, text in enumerate(inputs)]
    worker = trajectory(
        *written_inputs, problem=problem, name="worker", agent="worker", episode="e"
    )
    scored = await score([planner, worker], dict.fromkeys([planning, sql_accuracy], 1.0))
    return dict(scored[0].rewards)


def code(problem: Problem) -> list[str]:
    return [step["code"] for step in problem.facts["plan"]]


async def test_the_gold_plan_has_the_best_scores() -> None:
    for problem in PROBLEMS[:8]:
        scores = await rewards(problem, written(problem.facts["plan"]), code(problem))
        assert scores["planning"] == scores["sql_accuracy"] == 1.0
        assert {name: scores[f"planning/{name}"] for name in PERFECT} == PERFECT
        assert scores["planning/calls"] == 2 + len(problem.facts["plan"])


async def test_a_permuted_plan_has_the_wrong_order() -> None:
    for problem in LONG[:10]:
        for plan in list(permutations(problem.facts["plan"]))[1:]:
            assert (await rewards(problem, written(plan)))["planning"] == 0.0


async def test_another_order_of_lookups_keeps_the_pairs() -> None:
    [first, second, *others] = LONG[0].facts["plan"]
    scores = await rewards(LONG[0], written([second, first, *others]))
    assert scores["planning/pairs"] == 1.0 and scores["planning/order_lcs"] == pytest.approx(
        1 - 1 / len(LONG[0].facts["plan"])
    )


async def test_needless_sub_tasks_are_over_use() -> None:
    plan = LONG[0].facts["plan"]
    needless = {"tool": "weather", "subtask": "weather of Ghent", "inputs": [], "depends_on": []}
    scores = await rewards(LONG[0], written([*plan, needless, plan[0]]))
    assert scores["planning/over_use"] == 2 / (len(plan) + 2)
    assert scores["planning"] == 0.0 and scores["planning/format"] == 1.0


async def test_renamed_tools_change_no_score() -> None:
    for problem in LONG[:5]:
        plan = [{**step, "tool": f"my_{step['tool']}"} for step in problem.facts["plan"]]
        renamed = replace(problem, facts={**problem.facts, "plan": plan})
        mine = await rewards(renamed, written(plan))
        assert mine["planning"] == 1.0
        assert (await rewards(renamed, written(problem.facts["plan"])))["planning"] == 0.0


async def test_hard_coded_sql_is_wrong() -> None:
    for problem in PROBLEMS[:8]:
        steps, database = problem.facts["plan"], problem.facts["database"]
        lookups = [step["code"] for step in steps if step["tool"] == "sql"]
        constants = [f"SELECT {rows[0][0]}" for rows in results(database, lookups)]
        scores = await rewards(problem, written(steps), [*constants, "print(1)"])
        assert scores["sql_accuracy"] == 0.0


async def test_fifty_equivalent_statements_are_right() -> None:
    assert len({other for _, other in EQUIVALENT} - {one for one, _ in EQUIVALENT}) == 50
    plan = [
        {"tool": "sql", "subtask": f"{n}", "inputs": [], "depends_on": [], "code": one}
        for n, (one, _) in enumerate(EQUIVALENT)
    ]
    entities = {"orders": [482], "people": ["Anna Berg"], "companies": ["Amber Mills"]}
    facts = {"plan": plan, "entities": entities, "worlds": [3, 4, 5], "answer": "1"}
    others = [other for _, other in EQUIVALENT]
    problem = Problem("equivalent", "?", facts)
    assert (await rewards(problem, written(plan), others))["sql_accuracy"] == 1.0
    others[7] = others[16]
    assert (await rewards(problem, written(plan), others))["sql_accuracy"] == 49 / 50


@pytest.mark.parametrize(
    "statement",
    [
        "",
        "SELECT",
        "DROP TABLE orders",
        "ATTACH 'x' AS y",
        "SELECT {2} FROM orders",
        "SELECT x'00'",
    ],
)
async def test_other_statements_are_wrong(statement: str) -> None:
    problem = PROBLEMS[0]
    scores = await rewards(problem, written(problem.facts["plan"]), [statement])
    assert scores["sql_accuracy"] == 0.0


def spoilt(draw: random.Random, text: str) -> str:
    """A plan with random damage, or random text."""
    place, end = sorted(draw.choices(range(len(text)), k=2))
    damages: Sequence[Callable[[], str]] = (
        lambda: text[:place],
        lambda: text[:place] + text[end:],
        lambda: text[:place] + draw.choice('[]{}",:0-9\\\x00\ud800é') + text[place:],
        lambda: text.replace(
            "[]", draw.choice(["null", "[99]", "[-1]", '["{1}"]', "[[[]]]", "1e999"])
        ),
        lambda: text.replace('"tool"', draw.choice(['"tools"', "tool", '"subtask"', "7"])),
        lambda: "[" * draw.randrange(1, 100_000),
        lambda: json.dumps([text] * draw.randrange(3)),
        lambda: "".join(draw.choices("[]{}\"',: \n1aé", k=60)),
    )
    return draw.choice(damages)()


async def test_no_damaged_plan_crashes_the_scores() -> None:
    draw = random.Random(SEED)
    plans = [spoilt(draw, written(draw.choice(PROBLEMS).facts["plan"])) for _ in range(200)]
    readable = 0
    for plan in plans:
        scores = await rewards(LONG[0], plan, ["SELECT"])
        assert scores["planning"] in (0.0, 1.0)
        readable += scores["planning/format"] == 1.0
    assert 0 < readable < 100


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ([{"depends_on": [1]}], "earlier"),
        ([{"inputs": ["{1}"]}], "depends_on"),
        ([{"tool": 7}], "tool"),
        ([{"extra": 1}], "extra"),
    ],
)
def test_a_plan_that_is_no_plan_is_refused(plan: list[dict[str, Any]], message: str) -> None:
    step = {"tool": "sql", "subtask": "staff of X", "inputs": [], "depends_on": []}
    with pytest.raises(ValueError, match=message):
        parsed(json.dumps([{**step, **one} for one in plan]))


def test_a_later_plan_refers_to_earlier_results() -> None:
    step = {"tool": "sql", "subtask": "staff of X", "inputs": ["{2}"], "depends_on": [2]}
    assert parsed(f"Next: {json.dumps([step])}", earlier=2) == [SubTask(**step)]
    assert filled("print({1} + {2} + {3})", {1: "4", 2: "5"}) == "print(4 + 5 + {3})"
