"""One dataset of the problems of several tasks."""

import pytest

from agentfly_core.records.dataset import prepare, sizes_by_task, split
from agentfly_core.records.trajectory import Problem
from agentfly_core.testing.datasets import problems_of
from tests.support.mixtures import SUMS, settings_with

MIXTURE = "agentfly_core.datasets.mixture:mixture"
ARITHMETIC = SUMS["data"]


def test_problems_are_in_the_order_of_the_tasks(tmp_path):
    made = settings_with()
    prepare(made.data, made.data_seed, tmp_path, tmp_path / "quarantine.json")
    assert sizes_by_task(tmp_path) == {"sums": 12, "shop": 6}
    held_out = split(tmp_path, "test")
    assert [problem.task for problem in held_out] == ["sums"] * 4 + ["shop"] * 2
    assert all(problem.id.startswith(f"{problem.task}/") for problem in held_out)


def test_training_on_a_test_problem_of_another_task_is_refused():
    larger = {**ARITHMETIC, "train": 12, "test": 400, "validation": 0}
    tasks = {"few": larger, "many": {**larger, "train": 400, "test": 12, "seed": 1}}
    with pytest.raises(ValueError, match=r"'few/\S+' is the same as the training problem 'many/"):
        problems_of(MIXTURE, train=412, validation=0, test=412, tasks=tasks)


def asking(seed, train, validation, test, spaces=1, same=False):
    """One question in each split, spaced so; the held-out one is the training problem's or not."""
    prompt = f"What is{' ' * spaces}1+1?"
    rest = "What is 1+2?"
    made = {"train": [prompt] * train, "validation": [], "test": [prompt if same else rest] * test}
    return {
        split: [Problem(f"{split}-{i}", text, {}) for i, text in enumerate(texts)]
        for split, texts in made.items()
    }


def test_white_space_does_not_hide_a_shared_problem():
    data = {"use": f"{__name__}:asking", "train": 1, "validation": 0, "test": 1}
    tasks = {"one": data, "other": {**data, "spaces": 3, "same": True}}
    with pytest.raises(ValueError, match="'other/test-0' is the same as the training problem"):
        problems_of(MIXTURE, train=2, validation=0, test=2, tasks=tasks)


def test_problems_shared_within_one_task_are_reported():
    data = {"use": f"{__name__}:asking", "train": 1, "validation": 0, "test": 1, "same": True}
    made = problems_of(MIXTURE, train=1, validation=0, test=1, tasks={"one": data})
    assert [problem.id for problem in made["test"]] == ["one/test-0"]


def test_invalid_data_are_refused_with_their_task():
    tasks = {"sums": {**ARITHMETIC, "operators": "/"}}
    with pytest.raises(ValueError, match=r"tasks\.sums\.data: Got the operators \['/'\]"):
        problems_of(MIXTURE, tasks=tasks)
