"""The report of a night where people look: in its run, in Prefect and in MLflow."""

from __future__ import annotations

import logging

from prefect.artifacts import create_markdown_artifact

from agentfly_core.config.site import Site
from agentfly_core.experiment.run_layout import RunLayout
from agentfly_core.reports.nights.night_ledger import NightLedger
from agentfly_core.reports.nights.night_page import page_of
from agentfly_core.reports.nights.night_report import night_report
from agentfly_core.runs.run import links_of
from agentfly_core.system.formats.foreign_names import storable
from agentfly_core.system.formats.text import fault
from agentfly_core.tracking.mlflow_client import add_report
from flows.local.mlflow_ui import mlflow_place
from flows.reporting import FLOW_RUN_TAG
from flows.run_pages import artifact_key, mlflow_link, this_page

logger = logging.getLogger(__name__)


def report_night(ledger: NightLedger, site: Site, night: str) -> None:
    """Report a night that was judged: `runs/NIGHT/report.md`, the artifact `night-<experiment>` of
    this flow run, and report.md of its MLflow run, each with a link to the other.

    Never raises: what could not be done is logged, and `agentfly report` writes the file again.
    """
    store = ledger.store
    try:
        report = night_report(store, night)
        store.write_text(RunLayout(night).report, page_of(report))
    except Exception as error:  # the night is decided, with a report or without
        logger.exception("There is no report of %s: %s", night, fault(error))
        return
    try:
        address = this_page()
        text = page_of(report, f"[The night's flow run in Prefect]({address})")
        for run_id in links_of(store, night).get("mlflow_run_ids", [])[-1:]:
            add_report(mlflow_place(site), run_id, text, {FLOW_RUN_TAG: address})
    except Exception as error:  # MLflow has errors of many kinds
        logger.warning("The report of %s is not in MLflow: %s", night, fault(error))
    try:
        create_markdown_artifact(
            storable(page_of(report, mlflow_link(store, site, night, "The night's run in MLflow"))),
            key=artifact_key("night", ledger.experiment),
            description=f"What became of {night} of {storable(ledger.experiment)}",
        )
    except Exception as error:  # Prefect has errors of many kinds
        logger.warning("The report of %s is not in Prefect: %s", night, fault(error))
