"""Which problems of a split are played."""

import pytest

from agentfly_core.pipeline.play.episodes import problems
from agentfly_core.records.parquet import write_problems
from agentfly_core.records.trajectory import Problem

SPLIT = ["sums/a", "sums/b", "sums/c", "shop/d"]


@pytest.fixture
def folder(tmp_path):
    write_problems(tmp_path / "train.parquet", [Problem(id, f"{id}?", {}) for id in SPLIT])
    write_problems(tmp_path / "test.parquet", [])
    return tmp_path


def test_the_first_problems_are_played_and_those_of_a_mixtures_tasks_in_turn(folder):
    assert [one.id for one in problems(folder, "train", 2)] == ["sums/a", "sums/b"]
    found = problems(folder, "train", 3, tasks=("sums", "shop"))
    assert [one.id for one in found] == ["sums/a", "shop/d", "sums/b"]
    assert len(problems(folder, "train", 9, tasks=("sums", "shop"))) == 4


def test_a_problem_is_found_by_its_id_and_one_that_is_not_there_is_told(folder):
    assert problems(folder, "train", 8, "shop/d") == [Problem("shop/d", "shop/d?", {})]
    with pytest.raises(ValueError, match=r"has no problem 'shop/e'.*shop/d"):
        problems(folder, "train", 8, "shop/e")
    with pytest.raises(ValueError, match=r"The test split is empty; raise data\.test"):
        problems(folder, "test", 8)
