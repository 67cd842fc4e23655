"""Selection of the played problems of a split."""

import pytest

from agentfly_core.pipeline.play.episodes import problems
from agentfly_core.records.parquet import write_problems
from agentfly_core.records.trajectory import Problem, of_task

SPLIT = [
    *(of_task(Problem(name, f"{name}?", {}), "sums") for name in "abc"),
    of_task(Problem("d", "d?", {}), "shop"),
]


@pytest.fixture
def folder(tmp_path):
    write_problems(tmp_path / "train.parquet", SPLIT)
    write_problems(tmp_path / "test.parquet", [])
    return tmp_path


def test_the_first_problems_of_the_tasks_are_played_in_turn(folder):
    chosen = problems(folder, "train", 3)
    assert [one.id for one in chosen] == ["sums/a", "shop/d", "sums/b"]
    assert len(problems(folder, "train", 9)) == 4


def test_a_problem_is_chosen_by_id_and_a_missing_one_refused(folder):
    assert problems(folder, "train", 8, "shop/d") == [SPLIT[-1]]
    with pytest.raises(ValueError, match=r"problem 'shop/e'.*shop/d"):
        problems(folder, "train", 8, "shop/e")
    with pytest.raises(ValueError, match=r"test split .*empty; .*data\.test"):
        problems(folder, "test", 8)
