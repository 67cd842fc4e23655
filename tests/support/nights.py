"""Nights that are not played: a dataset, runs of scored steps, and their summaries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import yaml

from agentfly_core.artifacts.run_layout import RunLayout
from agentfly_core.artifacts.store import Artifact, ArtifactKey
from agentfly_core.config.experiment import Science
from agentfly_core.formats.json_value import as_json
from agentfly_core.records import ledger
from agentfly_core.records.ledger import LedgerRow
from agentfly_core.records.parquet import write_problems
from agentfly_core.records.run_record import Summary
from agentfly_core.records.trajectory import Problem
from agentfly_core.runs.context import ExperimentContext
from agentfly_core.runs.run import Run, opened
from tests.support.experiments import SUMMARY


def published(context: ExperimentContext, uri: str, split: str, problems: int) -> Artifact:
    """A dataset's split of problems p0, p1, ..."""
    with context.store.publish(ArtifactKey(uri, "prepare", uri, {})) as folder:
        write_problems(
            folder / f"{split}.parquet", [Problem(f"p{i}", "?") for i in range(problems)]
        )
    return context.store.artifact(uri)


def scored(night: str, step: int) -> str:
    """Where the scores of a step lie."""
    return RunLayout(night).step(step).scored


def scripted_run(
    context: ExperimentContext,
    night: str,
    changes: Sequence[str],
    fate: Callable[[], None],
) -> Summary:
    """Open or continue a run with these changes; each step scores its problems and publishes a
    policy, and `fate` strikes after the first.
    """
    changed = dict(change.split("=", 1) for change in changes)
    settings = {key: yaml.safe_load(value) for key, value in changed.items()}
    science = Science.model_validate({**context.science.model_dump(), **settings})
    ours = replace(context, resolved=replace(context.resolved, science=science))
    with opened(ours, night) as run:
        for step in range(science.steps + 1):
            _publish(run, step)
            if step == 1:
                fate()
        summary: Summary = {**SUMMARY, "run": night, "steps": science.steps}
        run.store.write_json(run.layout.summary, as_json(summary))
    return summary


def _publish(run: Run, step: int) -> None:
    layout, count = run.layout.step(step), run.science.rollout.problems
    if step == 0:
        uri = f"artifacts/start/{run.name}"
        with run.store.publish(ArtifactKey(uri, "model", run.name, {})):
            pass
        run.remember_start(run.store.artifact(uri))
        return
    with run.store.publish(ArtifactKey(layout.scored, "score", f"{run.name}{step}", {})) as folder:
        rows = [LedgerRow(step, f"p{i}", 1, 1, 0.0, "used") for i in range(count)]
        ledger.write(folder, rows)
    with run.store.publish(ArtifactKey(layout.policy, "update", f"{run.name}/{step}", {})):
        pass
