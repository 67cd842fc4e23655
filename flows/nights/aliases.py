"""MLflow's aliases of a registered model, as the night ledger has them."""

from __future__ import annotations

import logging
from pathlib import Path

from agentfly_core.artifacts.run_layout import record_of
from agentfly_core.formats.text import fault
from agentfly_core.reports.night_ledger import NightLedger
from agentfly_core.runs.context import ExperimentContext, policy_of
from agentfly_core.runs.mlflow_client import Place, set_aliases
from flows.local.state_dirs import settle

logger = logging.getLogger(__name__)


def report_aliases(context: ExperimentContext, ledger: NightLedger) -> None:
    """Let `champion` name who reigns, and `challenger` the policy of the last finished night.

    Never raises: what does not succeed is logged, and the next night reports it again.
    """
    try:
        place = Place.choose(settle(Path.cwd()).state, context.site.mlflow_tracking_uri)
        set_aliases(place, f"agentfly-{context.experiment}", _wanted(context, ledger))
    except Exception as error:  # MLflow is a report: a night does not fail by it
        logger.warning("MLflow's aliases of %s were not set: %s", context.experiment, fault(error))


def _wanted(context: ExperimentContext, ledger: NightLedger) -> dict[str, str]:
    """The digest of the policy that each alias names; empty where there is none."""
    champion = ledger.champion()
    finished = [entry.night for entry in ledger.entries() if entry.event == "finished"]
    wanted = {"champion": champion.policy.digest if champion else ""}
    if finished and (record := record_of(context.store, finished[-1])):
        step = record["science"]["steps"]
        assert isinstance(step, int)
        wanted["challenger"] = policy_of(context.store, finished[-1], step).digest
    return wanted
