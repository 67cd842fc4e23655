"""A process's work on a run: devices, lock, warm services, live display and MLflow run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from prefect.runtime import flow_run

from agentfly_core.experiment.checks import check_run
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.pipeline.forking import check_start
from agentfly_core.runs.run import Run, opened
from agentfly_core.system.formats.text import keeping_secrets
from agentfly_core.system.progress import listening
from flows.flow_run import devices, experiment_of_flow
from flows.local.display import Display
from flows.local.flow_run_owners import crash_dead
from flows.local.state_dirs import settle
from flows.reporting import reporting
from flows.run_pages import name_after


@dataclass(frozen=True)
class RunSession:
    """A flow's run, the function that reports it and the folder of its logs."""

    run: Run
    report: Callable[[Run], None]
    logs: Path

    @property
    def experiment(self) -> Experiment:
        """The run's experiment and place."""
        return self.run.experiment


@contextmanager
def session(
    experiment: str, run: str, overrides: list[str], new: bool, site: str, store: str
) -> Iterator[RunSession]:
    """Open a run for writing, on devices of its own, and close everything at the end."""
    loaded = experiment_of_flow(experiment, overrides, site, store)
    check_run(loaded, loaded.run_name(run, new))
    with devices(loaded.site, loaded.site.gpus, f"the run {loaded.run_name(run, new)}"):
        name = loaded.run_name(run, new)  # the next free one may be another after the wait
        logs = settle(Path.cwd()).state / "logs" / name
        with keeping_secrets(), opened(loaded, name) as mine:
            check_start(mine)
            crash_dead()
            mine.link("prefect_flow_run_ids", str(flow_run.id))
            mine.remember_sandbox()
            with (
                reporting(mine) as report,
                Display(name, mine.settings.steps) as display,
                listening(display),
            ):
                report(mine)  # the MLflow run appears while services start
                name_after(name)
                yield RunSession(mine, report, logs)
