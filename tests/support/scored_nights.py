"""Nights that are not played: a dataset, runs of scored steps, and their summaries."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from agentfly_core.config.experiment import Settings
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.run_layout import RunLayout
from agentfly_core.experiment.user_code import code_of
from agentfly_core.pipeline.playing import of_step
from agentfly_core.records import ledger
from agentfly_core.records.dataset import sizes_by_task, split
from agentfly_core.records.ledger import LedgerRow
from agentfly_core.records.parquet import write_problems
from agentfly_core.records.problem_schedule import by_task
from agentfly_core.records.run_record import Summary
from agentfly_core.records.trajectory import Problem
from agentfly_core.runs.run import Run, opened
from agentfly_core.store.artifact import Artifact, ArtifactKey
from agentfly_core.system.formats.json_value import as_json
from tests.support.experiments import SUMMARY
from tests.support.problems import schedule_of


def published(experiment: Experiment, uri: str, split: str, problems: int) -> Artifact:
    """A dataset's split of problems p0, p1, ..."""
    with experiment.store.publish(ArtifactKey(uri, "prepare", uri, {})) as folder:
        write_problems(
            folder / f"{split}.parquet", [Problem(f"p{i}", "?") for i in range(problems)]
        )
    return experiment.store.artifact(uri)


def scored(night: str, step: int) -> str:
    """Folder of a step's scores."""
    return RunLayout(night).step(step).scored


@dataclass(frozen=True, slots=True)
class Played:
    """A problem that a step of a night played and scored."""

    epoch: int
    problem: str
    seeds: tuple[int, ...]


def scripted_run(
    experiment: Experiment,
    night: str,
    changes: Sequence[str],
    fate: Callable[[], None],
    see: Callable[[Played], None] = lambda _: None,
) -> Summary:
    """Open or continue a run with these changes; each step scores its problems and publishes a
    policy, and `fate` strikes after the first.
    """
    values: dict[str, Any] = experiment.settings.model_dump()
    for change in changes:
        key, _, value = change.partition("=")
        section, _, name = key.rpartition(".")
        (values[section] if section else values)[name] = yaml.safe_load(value)
    settings = Settings.model_validate(values)
    settings = settings.with_code(code_of(settings, experiment.tasks))
    with opened(experiment.on(settings), night) as run:
        _publish(run, f"artifacts/start/{night}", "model")
        run.remember_start(run.store.artifact(f"artifacts/start/{night}"))
        for step in range(1, settings.steps + 1):
            if run.store.get(run.layout.step(step).scored) is None:
                _score(run, step, see)
            _publish(run, run.layout.step(step).policy, "update")
            if step == 1:
                fate()
        summary: Summary = {**SUMMARY, "run": night, "steps": settings.steps}
        run.store.write_json(run.layout.summary, as_json(summary))
    return summary


def _score(run: Run, step: int, see: Callable[[Played], None]) -> None:
    """Play the due problems, pass them to `see`, and store the ledger."""
    settings, data = run.settings, run.store.open(run.store.artifact("artifacts/data"))
    problems_of_split, before = split(data, "train"), run.problems_before(step)
    sizes = sizes_by_task(data)
    due = [
        problems_of_split[row]
        for row in schedule_of(settings).rows(
            schedule_of(settings).first_round(step, False, before), sizes
        )
    ]
    specs = of_step(settings.rollout, settings.seeds_of(step), due, step, False)
    assert settings.night is not None
    for task, problems in by_task(due, sizes).items():
        night = settings.night.of(task)
        for place, problem in enumerate(problems, night.problem + before[task]):
            seeds = tuple(spec.seed for spec in specs if spec.problem is problem)
            see(Played(night.epoch + place // sizes[task], problem.id, seeds))
    uri = run.layout.step(step).scored
    with run.store.publish(ArtifactKey(uri, "score", uri, {})) as folder:
        ledger.write(
            folder,
            [LedgerRow(step, problem.task, problem.id, 1, 1, 0.0, "used") for problem in due],
        )


def _publish(run: Run, uri: str, stage: str) -> None:
    with run.store.publish(ArtifactKey(uri, stage, uri, {})) as folder:
        (folder / "config.json").write_text(f'{{"name": "{uri}"}}')
