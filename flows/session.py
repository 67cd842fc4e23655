"""One sitting of a run: its devices, lock, warm services, live display and MLflow run, opened and closed together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from prefect.runtime import flow_run

from agentfly_core.artifacts.store import Artifact
from agentfly_core.formats.redaction import keeping_secrets
from agentfly_core.pipeline.services import Playground, learner_service, playground
from agentfly_core.runs.reporter import RunTeller
from agentfly_core.runs.run import Lab, Run, name_of, opened
from agentfly_core.system.progress import listening
from agentfly_core.system.service import Service
from flows.local.devices import devices
from flows.local.display import Display
from flows.local.prefect_server import crash_abandoned
from flows.local.state_dirs import settle
from flows.tell import telling
from flows.triggered import lab_of_flow


@dataclass(frozen=True)
class Session:
    """What a flow works with: the run, and whom it tells what happened."""

    run: Run
    tell: RunTeller
    logs: Path

    @property
    def lab(self) -> Lab:
        """The run's experiment and place."""
        return self.run.lab

    @contextmanager
    def services(self, model: Artifact) -> Iterator[tuple[Playground, Service]]:
        """The sampler with the environments, and the learner, starting now and warm until the block ends."""
        with playground(self.lab, model, self.run.uid, self.logs) as ground:
            with learner_service(self.lab, self.run.uid, self.logs) as learner:
                yield ground, learner


@contextmanager
def session(experiment: str, run: str, overrides: list[str], new: bool, site: str, store: str) -> Iterator[Session]:
    """Open a run for writing, on devices of its own, and close everything at the end."""
    lab = lab_of_flow(experiment, overrides, site, store)
    with devices(lab.site, lab.site.gpus, f"the run {name_of(lab, run, new)}"):
        name = name_of(lab, run, new)  # the next free one may be another after the wait
        logs = settle(Path.cwd()).state / "logs" / name
        with keeping_secrets(), opened(lab, name) as mine:
            _take_over(mine)
            mine.remember_sandbox()
            with telling(mine) as tell, Display(name, mine.science.steps) as display, listening(display):
                yield Session(mine, tell, logs)


def _take_over(run: Run) -> None:
    """Link this flow run to the run; those before it are over, since this one has the run's lock."""
    current = str(flow_run.id)
    crash_abandoned(old for old in run.links("prefect_flow_run_ids") if old != current)
    run.link("prefect_flow_run_ids", current)
