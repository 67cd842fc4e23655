"""The report of a night in its run, in Prefect and in MLflow, and MLflow's aliases."""

from __future__ import annotations

from agentfly_core.config.site import Site
from agentfly_core.experiment.run_layout import RunLayout, record_of
from agentfly_core.reports.nights.night_ledger import NightLedger
from agentfly_core.reports.nights.night_report import night_page
from agentfly_core.reports.nights.nights import last_policy
from agentfly_core.runs.run import links_of
from agentfly_core.tracking.mlflow_client import add_report, set_aliases
from flows.local.mlflow_ui import mlflow_place
from flows.run_pages import logged, mlflow_link, show_page, this_page


def report_night(ledger: NightLedger, site: Site, night: str) -> None:
    """Report a judged night: the file `runs/NIGHT/report.md`, the artifact `night-<experiment>` of
    this flow run, and report.md of its MLflow run.

    Never raises; `agentfly report` writes the file again.
    """
    store, page = ledger.store, ""
    with logged(f"The report of {night} was not written"):
        page = night_page(store, night)
        store.write_text(RunLayout(night).report, page)
    if not page:
        return
    with logged(f"The report of {night} is not in MLflow"):
        address = this_page()
        text = f"{page}\n[The night's flow run in Prefect]({address})\n"
        for run_id in links_of(store, night).get("mlflow_run_ids", [])[-1:]:
            add_report(mlflow_place(site), run_id, text, address)
    link = mlflow_link(store, site, night, "The night's run in MLflow")
    show_page("night", ledger.experiment, f"{page}\n{link}", f"Outcome of {night}")


def report_aliases(ledger: NightLedger, site: Site) -> None:
    """Set MLflow's aliases `champion` and `challenger`, the last finished night's policy.

    Never raises; the next night sets them again.
    """
    with logged(f"MLflow's aliases of {ledger.experiment} were not set"):
        history = ledger.read()
        champion = history.champion
        digests = {"champion": champion.policy.digest if champion else ""}  # empty removes it
        finished = [entry.night for entry in history.entries if entry.event == "finished"]
        if finished and record_of(ledger.store, finished[-1]):
            digests["challenger"] = last_policy(ledger.store, finished[-1]).policy.digest
        set_aliases(mlflow_place(site), f"agentfly-{ledger.experiment}", digests)
