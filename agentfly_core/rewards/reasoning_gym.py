"""The reward that uses reasoning-gym's scorers, for problems of `datasets.reasoning_gym`."""

import ast
import functools
import json
from collections.abc import Mapping
from functools import partial
from typing import Any

from agentfly_core.authoring.reward import reward
from agentfly_core.records.trajectory import Examples, Problem, Score, Trajectory
from agentfly_core.rewards.gold import NO_ANSWER
from agentfly_core.rewards.limited import limited
from agentfly_core.system.formats import parsing
from agentfly_core.system.formats.json_value import JSON
from agentfly_core.system.formats.text import fault, sentence
from agentfly_core.system.module_search import require_package

LONGEST = 100_000
EVALUATED = frozenset({"binary_matrix", "n_queens", "spiral_matrix", "string_insertion"})
"""Datasets with scorers that call Python's `eval` on the answer."""
OF_GIVEN_NUMBERS = "countdown"
"""The name of a dataset in which an answer must be made of the numbers in the problem."""
PARSED = {
    *(OF_GIVEN_NUMBERS, "intermediate_integration", "polynomial_multiplication"),
    "simple_integration",
}
"""Datasets with scorers that call sympy's `parse_expr` on the answer. `parse_expr` calls `eval`."""
CARELESS = ("game_of_life_halting", "puzzle24")
"""Datasets in which one answer gets the full score on every problem."""
_READY = partial(require_package, "reasoning-gym==0.1.25", "reasoning-gym")
_FUNCTIONS = frozenset({"Abs", "acos", "asin", "atan", "cos", "exp", "log", "sin", "sqrt", "tan"})
_ARITHMETIC = (
    *(ast.Expression, ast.Constant, ast.Name, ast.Load, ast.List, ast.Tuple, ast.Call),
    *(ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop),
)


def _examples(problem: Problem) -> Examples:
    """Return examples of right and wrong answers to a problem.

    The right answer is read from the fact `entry`, which is reasoning-gym's record of the problem.
    If a problem has many right answers, `entry` lacks an answer, so all examples are wrong answers.
    """
    answer = ast.literal_eval(problem.facts["entry"]).get("answer")
    right = (answer,) if isinstance(answer, str) and answer.strip() else ()
    return Examples(right, tuple(text for text in NO_ANSWER if text not in right))


@reward(process=True, timeout=300.0, ready=_READY, examples=_examples)
def reasoning_gym(trajectory: Trajectory) -> Score:
    """1 if reasoning-gym's scorer for the problem's dataset gives 1, else 0.

    The fact `dataset` of the problem has the name of the dataset. The partial score `partial` is
    the value that the scorer gives. This value is only a metric, because scorers also give points
    for a longer text that contains the answer. An answer is wrong if it could run code, takes more
    than 5 s to score, or has more than LONGEST characters.
    """
    facts, answer = trajectory.problem.facts, (trajectory.answer or "").strip()
    if trajectory.answer is None or len(answer) > LONGEST or runs_code(facts["dataset"], answer):
        return Score(0.0, parts={"partial": 0.0})
    scorer = _scorer(facts["dataset"], json.dumps(facts["config"]))
    entry = ast.literal_eval(facts["entry"])
    given = limited(partial(scorer.score_answer, answer, entry)) or 0.0
    return Score(float(given >= 1), parts={"partial": given})


def created(dataset: str, config: Mapping[str, JSON], **sizes: int) -> Any:
    """Create a dataset of reasoning-gym.

    `sizes` has the dataset's settings `seed` and `size`. `config` has all other settings. Settings
    that are missing have reasoning-gym's default values.

    Raises ValueError for an unknown name, for a wrong configuration, and for a dataset in which one
    answer solves all problems.
    """
    _READY()
    from reasoning_gym.factory import create_dataset

    if dataset in CARELESS:
        raise ValueError(
            f"{dataset!r} cannot be used, because one answer solves all its problems. Choose "
            "another dataset."
        )
    try:
        return create_dataset(dataset, **config, **sizes)
    except (AssertionError, TypeError, ValueError) as error:
        raise ValueError(
            f"reasoning-gym refuses {dataset!r} with {dict(config)}: {sentence(fault(error))}"
        ) from None


@functools.cache
def _scorer(dataset: str, config: str) -> Any:
    return created(dataset, json.loads(config), seed=0)


def runs_code(dataset: str, answer: str) -> bool:
    """Whether a dataset's scorer would execute code other than arithmetic in an answer.

    Only the scorers of the datasets in EVALUATED and PARSED execute answers. The scorers of PARSED
    use sympy's `parse_expr`, which also executes some texts that are not valid Python. So for
    datasets in PARSED, the result is True if the answer has a syntax error. For "countdown", the
    result is False only for arithmetic with whole numbers.
    """
    if dataset not in EVALUATED | PARSED:
        return False
    try:
        nodes = [*ast.walk(parsing.expression(answer))]
    except SyntaxError:
        return dataset in PARSED
    except (ValueError, RecursionError, MemoryError):  # NUL, or brackets without end
        return True
    allowed = _is_of_whole_numbers if dataset == OF_GIVEN_NUMBERS else _is_arithmetic
    return not all(map(allowed, nodes))


def _is_of_whole_numbers(node: ast.AST) -> bool:
    """Whether a node of an expression's syntax tree is arithmetic with whole numbers.

    Names of variables are not allowed. An answer must use only the numbers in the problem, but x/x
    would be a further number, 1.
    """
    if isinstance(node, ast.Constant):
        return type(node.value) is int
    return not isinstance(node, ast.Name | ast.Call) and _is_arithmetic(node)


def _is_arithmetic(node: ast.AST) -> bool:
    match node:
        case ast.Constant():
            return type(node.value) in (int, float)
        case ast.Call():
            allowed = isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS
            return allowed and not node.keywords
    return isinstance(node, _ARITHMETIC)
