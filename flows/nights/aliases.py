"""MLflow's aliases of a registered model, as the night ledger has them."""

from __future__ import annotations

import logging

from agentfly_core.config.site import Site
from agentfly_core.experiment.run_layout import record_of
from agentfly_core.reports.nights.night_ledger import NightLedger
from agentfly_core.reports.nights.nights import last_policy
from agentfly_core.system.formats.text import fault
from agentfly_core.tracking.mlflow_client import set_aliases
from flows.local.mlflow_ui import mlflow_place

logger = logging.getLogger(__name__)


def report_aliases(ledger: NightLedger, site: Site) -> None:
    """Let `champion` name the ledger's champion, and `challenger` the last finished night's policy.

    Never raises: what does not succeed is logged, and the next night reports it again.
    """
    try:
        champion = ledger.champion()
        wanted = {"champion": champion.policy.digest if champion else ""}  # empty: there is none
        finished = [entry.night for entry in ledger.entries() if entry.event == "finished"]
        if finished and record_of(ledger.store, finished[-1]):
            wanted["challenger"] = last_policy(ledger.store, finished[-1]).policy.digest
        set_aliases(mlflow_place(site), f"agentfly-{ledger.experiment}", wanted)
    except Exception as error:  # MLflow is a report: a night does not fail by it
        logger.warning("MLflow's aliases of %s were not set: %s", ledger.experiment, fault(error))
