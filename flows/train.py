"""The training flow: a run that is started, or continued from disk."""

from __future__ import annotations

from prefect import flow, runtime

from agentfly_core.pipeline.loop.training import Training, end_after
from agentfly_core.records.run_record import Summary
from flows.parameters import Another, ExperimentName, Hours, Overrides, RunName, SiteName, StoreUri
from flows.run_pages import show_summary
from flows.session import session
from tasks.stages import TASKS


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

    The step during which `hours` are over is the run's last one.
    """
    until = end_after(hours)
    with session(experiment, run, overrides, new, site, store) as here:
        summary = Training(here.run, here.logs, TASKS, until, here.report).complete()
    show_summary(here.run.store, here.experiment.site, summary)
    return summary
