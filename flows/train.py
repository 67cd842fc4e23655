"""The training flow, which starts a run or continues it from disk."""

from collections.abc import Iterator
from contextlib import contextmanager

from prefect import flow, runtime
from prefect.runtime import flow_run

from agentfly_core.pipeline.loop.forking import check_start
from agentfly_core.pipeline.loop.training import Training, end_after
from agentfly_core.records.run_record import Summary
from agentfly_core.runs.run import opened
from agentfly_core.runs.run_request import RunRequest
from agentfly_core.system.formats.text import keeping_secrets
from agentfly_core.system.progress import listening
from flows.flow_run import devices, experiment_of_flow, log_of_flow_run
from flows.local.display import Display
from flows.local.flow_run_owners import crash_dead
from flows.local.state_dirs import settle
from flows.parameters import Another, ExperimentName, Hours, Overrides, RunName, SiteName, StoreUri
from flows.reporting import reporting
from flows.run_pages import name_after, show_summary
from tasks.stages import TASKS


@contextmanager
def session(
    experiment: str, run: str, overrides: list[str], new: bool, site: str, store: str, until: float
) -> Iterator[Training]:
    """Lock the devices of a run and open the run for writing during the `with` block.

    During the block, the run is also shown on the terminal and sent to MLflow. No further step
    begins after `until`, which is a time of `time.monotonic()` in seconds.
    """
    loaded = experiment_of_flow(experiment, overrides, site, store)
    # checked before the wait for devices, which may take hours
    RunRequest(loaded, loaded.run_name(run, new)).check_new()
    with devices(loaded.site, loaded.site.gpus, f"the run {loaded.run_name(run, new)}"):
        name = loaded.run_name(run, new)  # during the wait, another process may have taken the name
        logs = settle().state / "logs" / name
        with keeping_secrets(), opened(loaded, name) as mine:
            check_start(mine)
            crash_dead()
            mine.link("prefect_flow_run_ids", str(flow_run.id))
            mine.remember_sandbox()
            log = log_of_flow_run()
            with (
                reporting(mine) as report,
                Display(name, mine.settings.steps, log=log.info if log else None) as display,
                listening(display),
            ):
                report(mine)  # the MLflow run appears while services start
                name_after(name)
                yield Training(mine, logs, TASKS, until, report)


def _title() -> str:
    given = runtime.flow_run.parameters
    return str(given["run"] or given["experiment"])


@flow(name="train", flow_run_name=_title)
def train(
    experiment: ExperimentName = "quickstart",
    run: RunName = "",
    overrides: Overrides = [],  # noqa: B006
    new: Another = False,
    site: SiteName = "local",
    store: StoreUri = "",
    hours: Hours = None,
) -> Summary:
    """Train an agent: start the run, or continue it from disk.

    After `hours`, the current step becomes the run's last step.
    """
    # computed now, because the wait for devices counts
    until = end_after(hours)
    with session(experiment, run, overrides, new, site, store, until) as training:
        summary = training.complete()
    show_summary(training.run.store, training.run.experiment.site, summary)
    return summary
