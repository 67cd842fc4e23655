"""Generated sums."""

import pytest

from agentfly_core.datasets.arithmetic import arithmetic
from agentfly_core.records.trajectory import Problem


def operands(problem: Problem) -> tuple[str, ...]:
    return tuple(sorted(problem.id.split("-")[1:]))


def test_a_problem_has_its_sum_and_its_answer() -> None:
    problems = {p.id: p for split in arithmetic(0, 8000, 1000, 1000).values() for p in split}
    first, second = (
        int(text) for text in next(id for id in problems if id.startswith("sub-")).split("-")[1:]
    )
    assert problems[f"sub-{first}-{second}"] == Problem(
        f"sub-{first}-{second}", f"What is {first}-{second}?", {"answer": str(first - second)}
    )


def test_splits_have_their_sizes_and_share_no_operands() -> None:
    splits = arithmetic(0, 4000, 200, 1000)
    assert {name: len(problems) for name, problems in splits.items()} == {
        "train": 4000,
        "validation": 200,
        "test": 1000,
    }
    pairs = [{operands(problem) for problem in problems} for problems in splits.values()]
    assert not pairs[0] & pairs[1] and not pairs[0] & pairs[2] and not pairs[1] & pairs[2]


def test_the_seed_decides_the_problems() -> None:
    assert arithmetic(3, 20, 5, 5) == arithmetic(3, 20, 5, 5)
    assert arithmetic(3, 20, 5, 5) != arithmetic(4, 20, 5, 5)


def test_no_problem_is_repeated() -> None:
    problems = [
        problem.id for split in arithmetic(0, 20_000, 200, 1000).values() for problem in split
    ]
    assert len(problems) == len(set(problems))


def test_only_the_given_operators_are_used() -> None:
    assert all(
        problem.id.startswith("add-") for problem in arithmetic(0, 50, 5, 5, operators="+")["train"]
    )


def test_an_unknown_operator_is_refused() -> None:
    with pytest.raises(ValueError, match=r"operators \['/'\]"):
        arithmetic(0, 10, 1, 1, operators="+/")


def test_too_many_problems_are_refused() -> None:
    with pytest.raises(ValueError, match=r"data.train is 30000, but"):
        arithmetic(0, 30_000, 1, 1)
