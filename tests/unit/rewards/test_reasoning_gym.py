"""Answers to problems of reasoning-gym, and answers that would run code in its scorers."""

import ast
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from agentfly_core.datasets.reasoning_gym import reasoning_gym as problems
from agentfly_core.records.trajectory import Problem, Score
from agentfly_core.rewards.reasoning_gym import (
    CARELESS,
    EVALUATED,
    PARSED,
    reasoning_gym,
    runs_code,
)
from agentfly_core.testing import play

pytestmark = pytest.mark.skipif(
    find_spec("reasoning_gym") is None, reason="reasoning-gym is not installed: its extra"
)


def one_of(dataset: str) -> Problem:
    return problems(0, 1, 0, 1, dataset)["train"][0]


async def scored(problem: Problem, answer: str) -> Score:
    result = await reasoning_gym.score(await play([answer], problem=problem), {})
    assert isinstance(result, Score)
    return result


@pytest.mark.slow
async def test_only_the_bare_right_answer_earns_one() -> None:
    problem = one_of("chain_sum")
    right = problem.facts["answer"]
    assert await scored(problem, f" {right}\n") == Score(1.0, {"partial": 1.0})
    assert await scored(problem, "") == Score(0.0, {"partial": 0.0})
    around = await scored(problem, f"It is {right}")
    assert around.value == 0.0
    assert 0 < around.parts["partial"] < 1


async def test_an_unreadable_answer_is_wrong() -> None:
    assert await scored(one_of("prime_factorization"), "x") == Score(0.0, {"partial": 0.0})


async def test_an_answer_runs_no_code_in_its_scorer(tmp_path: Path) -> None:
    problem, mark = one_of("countdown"), tmp_path / "mark"
    assert await scored(problem, problem.facts["answer"]) == Score(1.0, {"partial": 1.0})
    attack = f"open({str(mark)!r}, 'w')"
    assert await scored(problem, attack) == Score(0.0, {"partial": 0.0})
    assert not mark.exists()


@pytest.mark.parametrize(
    "answer",
    [
        "__import__('os').system('ls')",
        "__import__('os').system('ls') + 3!",
        "sin('__import__(chr(111))')",
        "[entry for entry in ()]",
        "(lambda: 1)()",
        "entry['answer']",
        "entry.answer",
        "sin(x=1)",
        "f'{entry}'",
        "0 if (x := 1) else 2",
        "1\0",
        "(" * 5000,
    ],
)
def test_only_arithmetic_is_evaluated(answer: str) -> None:
    assert runs_code("countdown", answer)


@pytest.mark.parametrize("spare", ["(x/x)", "cos(x-x)", "True"])
async def test_a_number_outside_of_the_problem_is_wrong(spare: str) -> None:
    problem = one_of("countdown")
    given = ast.literal_eval(problem.facts["entry"])["metadata"]
    numbers = "+".join(map(str, given["numbers"]))
    answer = f"({numbers})*({spare}-{spare})" + f" + {spare}" * given["target"]
    assert await scored(problem, answer) == Score(0.0, {"partial": 0.0})


def test_plain_answers_are_not_taken_for_code() -> None:
    assert not runs_code("countdown", "(25 + 3)*4 - 16/2")
    assert not runs_code("intermediate_integration", "sqrt(x) + C")
    assert not runs_code("simple_integration", "-x**2/2 + sin(x) + C")
    assert not runs_code("binary_matrix", "0 1\n1 0")
    assert not runs_code("chain_sum", "open('x')")


def test_every_evaluating_scorer_is_listed() -> None:
    """Those of the installed version: a later one may have others."""
    spec = find_spec("reasoning_gym")
    assert spec and spec.origin
    datasets = set()
    for path in Path(spec.origin).parent.rglob("*.py"):
        source = path.read_text()
        if re.search(r"\b(eval|exec|parse_expr|sympify|literal_eval)\([^)]*answer", source):
            datasets |= set(re.findall(r"DATASET_NAME = \"(\w+)\"", source))
    by_entry = {"number_sorting"}  # evaluates its own right answer
    assert datasets - by_entry - {*CARELESS} == EVALUATED | PARSED


def test_a_missing_package_has_its_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(ValueError, match=r"is missing.*pip install reasoning-gym==0.1.25"):
        reasoning_gym.ready()
    with pytest.raises(ValueError, match=r"is missing.*pip install reasoning-gym==0.1.25"):
        one_of("chain_sum")
