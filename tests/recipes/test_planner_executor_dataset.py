"""Generated sums of three numbers in words."""

import re

import pytest

from agentfly_core.recipes.planner_executor.dataset import SIGNS, two_steps
from agentfly_core.records.trajectory import Problem


def answer(problem: Problem) -> int:
    """The answer to a prompt, calculated from left to right."""
    match = re.fullmatch(r"What is (\d+) (\w+) (\d+), then (\w+) (\d+)\?", problem.prompt)
    assert match is not None
    a, word, b, then, c = match.groups()
    return int(eval(f"({a} {SIGNS[word]} {b}) {SIGNS[then]} {c}"))


def test_a_problem_has_its_steps_and_its_answer() -> None:
    for problem in two_steps(0, 200, 1, 1)["train"]:
        assert problem.facts["answer"] == str(answer(problem))
        assert problem.prompt == f"What is {', then '.join(problem.facts['steps'])}?"
        words = [problem.facts["steps"][0], *problem.facts["steps"][1:]]
        assert problem.id == "-".join(["two-steps", *" ".join(words).split()])


def test_splits_have_their_sizes_and_share_no_first_numbers() -> None:
    splits = two_steps(0, 4096, 200, 500)
    assert [len(problems) for problems in splits.values()] == [4096, 200, 500]
    pairs = [
        {frozenset(re.findall(r"\d+", problem.facts["steps"][0])) for problem in problems}
        for problems in splits.values()
    ]
    assert not pairs[0] & pairs[1] and not pairs[0] & pairs[2] and not pairs[1] & pairs[2]


def test_all_pairs_of_operations_are_used() -> None:
    pairs = {
        tuple(re.findall(r"plus|minus|times", p.prompt)) for p in two_steps(0, 200, 1, 1)["train"]
    }
    assert len(pairs) == 9


def test_too_many_problems_are_refused() -> None:
    with pytest.raises(ValueError, match=r"data\.train is 20000, but"):
        two_steps(0, 20000, 1, 1)
