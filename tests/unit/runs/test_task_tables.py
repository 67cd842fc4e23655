"""Tables that benchmarks/tasks.py prints for the tasks of an experiment."""

from dataclasses import replace
from operator import attrgetter

from agentfly_core.config.tasks import TASK
from agentfly_core.records.trajectory import Problem
from agentfly_core.runs.summary import Evaluation, rates_by
from benchmarks.harness import Evaluated
from benchmarks.learning import rows
from benchmarks.tasks import parts_of


def evaluation(solved: dict[str, float]) -> Evaluation:
    """Evaluation of these problems, as part of a mixture."""
    problems = [Problem(name, "?", task=name.partition("/")[0]) for name in solved]
    by = {TASK: rates_by(attrgetter("task"), problems, solved)}
    return Evaluation("9f2c", "test", 0.5, (0.0, 1.0), solved, 1.0, 0, by=by)


def test_each_task_of_a_mixture_has_its_own_row() -> None:
    before = evaluation({"shop/1": 0.0, "shop/2": 0.0, "sums/1": 1.0, "sums/2": 0.0})
    after = evaluation({"shop/1": 1.0, "shop/2": 1.0, "sums/1": 1.0, "sums/2": 0.0})
    assert [row[:5] for row in rows(parts_of(Evaluated(before, after)))] == [
        ["shop", "2", "0.000", "1.000", "+1.000"],
        ["sums", "2", "0.500", "0.500", "+0.000"],
    ]


def test_a_further_dataset_has_a_row() -> None:
    whole = replace(evaluation({"1": 0.0, "2": 0.0}), by={})
    apart = replace(whole, datasets={"unseen": whole})
    assert parts_of(Evaluated(whole, whole)) == {}
    assert parts_of(Evaluated(apart, apart)) == {"unseen": Evaluated(whole, whole)}
