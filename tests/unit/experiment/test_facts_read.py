"""Which facts a function reads stands in its source."""

from agentfly_core import Problem
from agentfly_core.experiment.checks import facts_read


def reads(problem: Problem) -> object:
    found = problem.facts["answer"], problem.facts["unit"], problem.facts["answer"]
    problem.facts["written"] = 1  # type: ignore[index]
    return found, problem.facts.get("perhaps"), {"facts": 1}["facts"]


class Judge:
    def __init__(self, problem: Problem) -> None:
        self.made = problem.facts["made"]

    def __call__(self, problem: Problem) -> object:
        return problem.facts["gold"]


def test_facts_are_those_that_must_be_there_each_once():
    assert facts_read(reads) == ["answer", "unit"]
    assert facts_read(Judge(Problem("a", "?", {"made": 1}))) == ["gold"]
    assert facts_read(Judge) == ["gold"]


def test_what_has_no_source_reads_nothing_that_is_known():
    made = {}
    exec("def typed(problem): return problem.facts['x']", made)
    assert facts_read(made["typed"]) == facts_read(len) == []
