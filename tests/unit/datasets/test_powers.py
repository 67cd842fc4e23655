"""Generated sums of powers."""

import pytest

from agentfly_core.datasets.powers import powers, problem
from agentfly_core.records.trajectory import Problem


def test_a_problem_has_its_sum_and_its_answer() -> None:
    facts = {"answer": "509", "bounds": [2, 12, 15]}  # 144 + 169 + 196
    assert problem(2, 12, 15) == Problem(
        "pow-2-12-15", "Add up i**2 for i from 12, below 15.", facts
    )


def test_splits_have_their_sizes_and_share_no_bounds() -> None:
    splits = powers(0, 4000, 200, 1000)
    assert [len(problems) for problems in splits.values()] == [4000, 200, 1000]
    bounds = [{tuple(p.facts["bounds"][1:]) for p in problems} for problems in splits.values()]
    assert not bounds[0] & bounds[1] and not bounds[0] & bounds[2] and not bounds[1] & bounds[2]


def test_too_many_problems_are_refused() -> None:
    with pytest.raises(ValueError, match=r"data\.train is 20000, but"):
        powers(0, 20000, 1, 1)
