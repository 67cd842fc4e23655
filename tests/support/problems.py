"""Problems, and a dataset of them."""

from pathlib import Path

from agentfly_core.records.problem_schedule import ProblemSchedule
from agentfly_core.records.trajectory import Problem


def problems(prefix, count):
    return [
        Problem(f"{prefix}-{i:03d}", f"What is {prefix} {i}?", {"answer": str(i)})
        for i in range(count)
    ]


def clean(seed, train, validation, test):
    return {
        "train": problems("a", train),
        "validation": problems("b", validation),
        "test": problems("c", test),
    }


def mapped(seed, train, validation, test, maps: Path):
    """The same, of a folder of maps."""
    return clean(seed, train, validation, test)


def perhaps_mapped(seed, train, validation, test, maps: Path | None = None):
    """The same, with or without a folder of maps."""
    return clean(seed, train, validation, test)


def kinds(seed, train, validation, test, hard=("c-001",)):
    """The same, each with its kind."""

    def of_kind(problem):
        kind = "hard" if problem.id in hard else "easy"
        return Problem(problem.id, problem.prompt, {**problem.facts, "kind": kind})

    splits = clean(seed, train, validation, test)
    return {split: [of_kind(problem) for problem in problems] for split, problems in splits.items()}


def schedule_of(settings):
    quotas = settings.quotas(settings.rollout.problems)
    return ProblemSchedule(settings.seed, settings.rollout, quotas, settings.night)
