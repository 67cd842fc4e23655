"""Links between a flow run in Prefect and its run in MLflow."""

from __future__ import annotations

import logging
from pathlib import Path
from uuid import UUID

from prefect.artifacts import create_markdown_artifact
from prefect.client.orchestration import get_client
from prefect.runtime import flow_run

from agentfly_core.config.site import Site
from agentfly_core.records.run_record import Summary
from agentfly_core.runs.run import links_of
from agentfly_core.store.store import Store
from agentfly_core.system.formats.foreign_names import prefect_key, storable
from agentfly_core.system.formats.text import counted, fault
from agentfly_core.tracking.mlflow_client import page
from flows.local.mlflow_ui import PORT, mlflow_place, serving
from flows.local.prefect_server import flow_run_page
from flows.local.state_dirs import settle

logger = logging.getLogger(__name__)


def name_after(run: str) -> None:
    """Name this flow run after its run."""
    try:
        with get_client(sync_client=True) as client:
            client.update_flow_run(UUID(str(flow_run.id)), name=run)
    except Exception as error:  # Prefect has errors of many kinds
        logger.warning("Prefect did not take the name %s: %s", run, fault(error))


def show_summary(store: Store, site: Site, summary: Summary) -> None:
    """Publish the summary as the artifact `run-<experiment>` of this flow run, linked to MLflow.

    Never raises, because the run is finished.
    """
    run, experiment = summary["run"], summary["experiment"]
    try:
        create_markdown_artifact(
            storable(summary_page(summary, mlflow_link(store, site, run, "The run in MLflow"))),
            key=artifact_key("run", experiment),
            description=f"Summary of {run} of {storable(experiment)}",
        )
    except Exception as error:  # Prefect has errors of many kinds
        logger.warning("The summary of %s is not in Prefect: %s", run, fault(error))


def summary_page(summary: Summary, link: str) -> str:
    """Held-out success before and after in markdown, with links."""
    rows = ["| held-out success | solved | 95 % interval |", "|---|---|---|"]
    for when, share, (low, high) in (
        ("before", summary["success_before"], summary["interval_before"]),
        ("after", summary["success_after"], summary["interval_after"]),
    ):
        rows.append(f"| {when} | {share:.1%} | {low:.1%} to {high:.1%} |")
    title = f"# {summary['run']}: {counted(summary['steps'], 'step')} of {summary['experiment']}"
    more = f"Its episodes: `agentfly show {summary['run']}`"
    return "\n\n".join(filter(None, [title, "\n".join(rows), link, more]))


def artifact_key(what: str, experiment: str) -> str:
    """The key of an artifact in Prefect: `artifact_key("night", "my-shop")` is "night-my-shop"."""
    return prefect_key(f"{what}-{experiment}")


def this_page() -> str:
    """This flow run's address in the Prefect UI."""
    return flow_run_page(settle(Path.cwd()).api, str(flow_run.id))


def mlflow_link(store: Store, site: Site, run: str, words: str) -> str:
    """Link to a run in MLflow; "" if MLflow does not have it or fails."""
    place, run_ids = mlflow_place(site), links_of(store, run).get("mlflow_run_ids")
    if not run_ids:
        return ""
    server = serving(place)
    try:
        address = page(place, run_ids[-1], server or f"http://127.0.0.1:{PORT}")
    except Exception as error:  # MLflow has errors of many kinds
        logger.warning("MLflow does not say where %s is: %s", run, fault(error))
        return ""
    return f"[{words}]({address})" + (
        "" if server else f" (while `agentfly open mlflow {run}` serves it)"
    )
