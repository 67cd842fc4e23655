"""What a release called its experiments, its runs and what their stages made, for later releases.

`released.json` was written by the release of 23 November 2026: files of experiments, and what each
was called with some overrides. `released_run.json` is the record of a run of conf/tiny.yaml that it
did, with the manifest of each stage.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from agentfly_core.artifacts import keys
from agentfly_core.artifacts.store import Artifact, ArtifactKey, Store
from agentfly_core.config.experiment import Science
from agentfly_core.config.loading import Experiment, read
from agentfly_core.config.site import Site
from agentfly_core.records.problem_schedule import first_round
from agentfly_core.runs.context import ExperimentContext, resolve
from agentfly_core.runs.run import name_of

HERE = Path(__file__).resolve().parent
FOUND = json.loads((HERE / "released.json").read_text())
RUN: dict[str, Any] = json.loads((HERE / "released_run.json").read_text())


@dataclass(frozen=True)
class Released:
    """An experiment by its file's content and the overrides, and what it was called."""

    name: str
    written: Mapping[str, Any]
    overrides: tuple[str, ...]
    called: Mapping[str, Any]

    def read(self, folder: Path) -> Experiment:
        """As this release reads it."""
        (folder / f"{self.name}.yaml").write_text(
            yaml.safe_dump(dict(self.written), sort_keys=False)
        )
        return read(str(folder / f"{self.name}.yaml"), self.overrides)

    def __str__(self) -> str:
        return " ".join([self.name, *self.overrides])


EXPERIMENTS = [
    Released(each["name"], FOUND["files"][each["name"]], tuple(each["overrides"]), each["called"])
    for each in FOUND["experiments"]
]


def called(experiment: Experiment, folder: Path) -> dict[str, Any]:
    """What this release calls an experiment and all that is made of it."""
    context = ExperimentContext(
        experiment.name,
        resolve(experiment.science),
        experiment.origin,
        Site(),
        Store.at(str(folder), folder),
    )
    made = {target.stage: f"{target.key} {target.uri}" for target in _slots(experiment.science)}
    return {"run": name_of(context, "", False), "digest": experiment.science.digest, "stages": made}


def _slots(science: Science) -> Iterator[ArtifactKey]:
    data, model, before, scored = (
        Artifact(f"artifacts/{name}", name * 8) for name in ("data", "base", "warm", "mark")
    )
    yield keys.prepare(science)
    yield keys.model(science)
    if science.warm_start:
        yield keys.demonstrations(science, model, data, {})
        yield keys.warm_start(science, model, before, 2)
    yield keys.evaluation(science, before, data, "test", 0, {})
    drawn = first_round(science, 3, resolve(science).greedy).drawn(science)
    yield keys.rollout(science, "demo", before, data, 3, 1, drawn, {})
    yield keys.scored(science, [Artifact("runs/demo/steps/000003/rollout-000", "play" * 8)])
    yield keys.policy(science, "demo", before, scored, 3, model if science.adapter else None)
