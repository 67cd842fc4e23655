"""The facts that a function reads are taken from its source."""

from agentfly_core import Problem
from agentfly_core.experiment.checks import facts_read


def reads(problem: Problem) -> object:
    facts = problem.facts["answer"], problem.facts["unit"], problem.facts["answer"]
    problem.facts["written"] = 1  # type: ignore[index]
    return facts, problem.facts.get("perhaps"), {"facts": 1}["facts"]


class Judge:
    def __init__(self, problem: Problem) -> None:
        self.made = problem.facts["made"]

    def __call__(self, problem: Problem) -> object:
        return problem.facts["gold"]


def test_required_facts_are_listed_once():
    assert facts_read(reads) == ["answer", "unit"]
    assert facts_read(Judge(Problem("a", "?", {"made": 1}))) == ["gold"]
    assert facts_read(Judge) == ["gold"]


def test_without_source_no_facts_are_listed():
    made = {}
    exec("def typed(problem): return problem.facts['x']", made)
    assert facts_read(made["typed"]) == facts_read(len) == []
