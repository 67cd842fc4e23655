"""What becomes of a night's policy: champion, kept as a challenger, or left to a person."""

from __future__ import annotations

from pathlib import Path

from prefect import get_run_logger
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound

from agentfly_core.artifacts.store import Artifact
from agentfly_core.reports.night_ledger import Champion, NightLedger
from agentfly_core.reports.promotion import CONFIRMATION, Verdict
from agentfly_core.runs.context import ExperimentContext, policy_of
from agentfly_core.runs.run import record_of
from flows.local.state_dirs import settle
from flows.nights.aliases import report_aliases
from flows.nights.events import tell
from flows.nights.judging import Match

APPROVAL = "promote/promote"


def decide(context: ExperimentContext, ledger: NightLedger, night: str, approval: bool) -> None:
    """Judge a finished night's policy, write down and tell what becomes of it.

    `context` is the night's. With `approval` a better policy waits for a person.
    """
    challenger = last_policy(context, night)
    champion = ledger.champion() or Champion(f"run:{night}@0", policy_of(context.store, night, 0))
    logs = settle(Path.cwd()).state / "logs" / night
    match = Match(context, champion.policy, challenger.policy, night, logs)
    verdict = match.verdict(confirmations(ledger))
    details = {"verdict": verdict.json(), "against": champion.to_json()}
    event = ("awaits_approval" if approval else "promoted") if verdict.promoted else "kept"
    reigns = challenger if event == "promoted" else None
    ledger.append(night, event, verdict.why, reigns, **details)
    get_run_logger().info("%s", verdict.why)
    report_aliases(context, ledger)
    tell("worse" if verdict.worse else event, night, context.experiment, verdict.why)
    if event == "awaits_approval":
        _ask(context, night)


def last_policy(context: ExperimentContext, run: str) -> Champion:
    """The policy of a run's last step, as it would reign."""
    record = record_of(context.store, run)
    assert record is not None, f"{run} is there, since its policy is judged"
    step = record["science"]["steps"]
    assert isinstance(step, int)
    return Champion(f"run:{run}@{step}", policy_of(context.store, run, step))


def confirmations(ledger: NightLedger) -> int:
    """How many confirmations there have been: each has problems of its own."""
    verdicts = [
        entry.details["verdict"] for entry in ledger.entries() if "verdict" in entry.details
    ]
    comparisons = [one for verdict in verdicts for one in Verdict.of_json(verdict).comparisons]
    return sum(one.name == CONFIRMATION for one in comparisons)


def _ask(context: ExperimentContext, night: str) -> None:
    """Start the flow run in which a person decides; logs how to where nothing is deployed."""
    given = {"experiment": context.experiment, "run": night, "site": context.site.name}
    given["store"] = context.store.uri
    try:
        run_deployment(APPROVAL, parameters=given, timeout=0, as_subflow=False)
    except ObjectNotFound:
        get_run_logger().warning(
            "Nobody is asked in the Prefect UI, since %s is not deployed (python -m flows.deploy). "
            "To decide: agentfly promote %s",
            APPROVAL,
            night,
        )
