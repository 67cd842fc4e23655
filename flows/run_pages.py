"""Publish reports of runs and nights (nightly training runs) in Prefect and MLflow, with links
between Prefect flow runs and MLflow runs.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.client.orchestration import get_client
from prefect.runtime import flow_run

from agentfly_core.config.site import Site
from agentfly_core.experiment.run_layout import RunLayout, record_of
from agentfly_core.records.run_record import Summary
from agentfly_core.reports.nights.night_ledger import NightLedger
from agentfly_core.reports.nights.night_report import night_page
from agentfly_core.reports.nights.nights import last_policy
from agentfly_core.runs.run import links_of
from agentfly_core.runs.tracking.mlflow_client import add_report, page, set_aliases
from agentfly_core.store.store import Store
from agentfly_core.system.formats.foreign_names import prefect_key, storable
from agentfly_core.system.formats.text import logged
from flows.local.display import summary_page
from flows.local.mlflow_ui import PORT, mlflow_place, serving
from flows.local.prefect_server import flow_run_page
from flows.local.state_dirs import settle


def name_after(run: str) -> None:
    """Rename the current Prefect flow run to the name of the training run."""
    with logged(f"Prefect did not take the name {run}"), get_client(sync_client=True) as client:
        client.update_flow_run(UUID(str(flow_run.id)), name=run)


def show_summary(store: Store, site: Site, summary: Summary) -> None:
    """Publish a run's summary as the artifact `run-<experiment>` of the current Prefect flow run.

    The summary contains a link to the run in MLflow. An error is only logged, because the run is
    finished.
    """
    run = summary["run"]
    link = mlflow_link(store, site, run, "The run in MLflow")
    text = summary_page(summary, link, f"Its episodes: `agentfly show {run}`")
    show_page("run", summary["experiment"], text, f"Summary of {run}")


def show_page(what: str, experiment: str, text: str, description: str) -> None:
    """Publish a Markdown text as an artifact of the current Prefect flow run.

    An error is only logged.
    """
    with logged(f"Prefect did not take this page: {description}"):
        create_markdown_artifact(
            storable(text),
            key=artifact_key(what, experiment),
            description=f"{description} of {storable(experiment)}",
        )


def show_rows(what: str, experiment: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Publish rows as a table of the current Prefect flow run. An error is only logged."""
    with logged(f"Prefect did not take the rows of {what}"):
        create_table_artifact([{**row} for row in rows], key=artifact_key(what, experiment))


def artifact_key(what: str, experiment: str) -> str:
    """Return the key of an artifact in Prefect.

    For example, `artifact_key("night", "my-shop")` is "night-my-shop".
    """
    return prefect_key(f"{what}-{experiment}")


def mlflow_link(store: Store, site: Site, run: str, words: str) -> str:
    """Return a Markdown link to a run in MLflow. `words` is the text of the link.

    Returns "" if MLflow does not have the run or fails.
    """
    with logged(f"The address of {run} in MLflow could not be read"):
        place, run_ids = mlflow_place(site), links_of(store, run).get("mlflow_run_ids")
        if run_ids:
            server = serving(place)
            address = page(place, run_ids[-1], server or f"http://127.0.0.1:{PORT}")
            hint = "" if server else f" (while `agentfly open mlflow {run}` serves it)"
            return f"[{words}]({address}){hint}"
    return ""


def report_night(ledger: NightLedger, site: Site, night: str) -> None:
    """Publish the report of a night (nightly training run).

    The night's policy must already be compared with the champion (the policy to beat).

    The report is written to these places:

    - the file `runs/NIGHT/report.md` in the store. `agentfly report` can write this file again.
    - the artifact `night-<experiment>` of the current Prefect flow run
    - the file report.md of the night's MLflow run

    An error is only logged.
    """
    store, report = ledger.store, ""
    with logged(f"The report of {night} was not written"):
        report = night_page(store, night)
        store.write_text(RunLayout(night).report, report)
    if not report:
        return
    with logged(f"The report of {night} is not in MLflow"):
        address = flow_run_page(settle().api, str(flow_run.id))
        text = f"{report}\n[The night's flow run in Prefect]({address})\n"
        for run_id in links_of(store, night).get("mlflow_run_ids", [])[-1:]:
            add_report(mlflow_place(site), run_id, text, address)
    link = mlflow_link(store, site, night, "The night's run in MLflow")
    title, _, rest = report.partition("\n\n")
    show_page("night", ledger.experiment, f"{title}\n\n{link}\n\n{rest}", f"Outcome of {night}")


def report_aliases(ledger: NightLedger, site: Site) -> None:
    """Set the aliases of an experiment's registered model in MLflow.

    The alias `champion` names the policy that new policies must beat. The alias `challenger` names
    the policy of the last finished night (nightly training run). An error is only logged, because
    the next night sets the aliases again.
    """
    with logged(f"MLflow's aliases of {ledger.experiment} were not set"):
        history = ledger.read()
        champion = history.champion
        digests = {"champion": champion.policy.digest if champion else ""}  # "" removes the alias
        finished = [entry.night for entry in history.entries if entry.event == "finished"]
        if finished and record_of(ledger.store, finished[-1]):
            digests["challenger"] = last_policy(ledger.store, finished[-1]).policy.digest
        set_aliases(mlflow_place(site), f"agentfly-{ledger.experiment}", digests)
