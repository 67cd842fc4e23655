"""Commands about this machine and this project: checks, DVC and Prefect."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from agentfly_core.config import loading
from agentfly_core.runs import versioning
from agentfly_core.sandbox import preflight, report
from agentfly_core.sandbox.attacks import ATTACKS
from agentfly_core.sandbox.self_test import attacked
from flows.cli.arguments import ExperimentArgument
from flows.local import doctor as doctors
from flows.local.flow_run_owners import crash_dead
from flows.local.prefect_server import answers, prefect_command
from flows.local.state_dirs import settle
from flows.local.terminal import VisibleConsole
from flows.nights import readiness


def doctor(*, sandbox: bool = False) -> int:
    """Check what this machine can run, and how to repair it.

    For example `agentfly doctor --sandbox`.

    Args:
        sandbox: attack the sandbox, and report what it stops
    """
    if sandbox:
        chosen = preflight.chosen()
        outcomes = asyncio.run(attacked(chosen, ATTACKS))
        VisibleConsole().print(report.table(chosen, outcomes))
        return 0 if all(outcome.stopped for outcome in outcomes) else 1
    site, places = loading.site("local"), settle(Path.cwd())
    findings = doctors.examine(Path.cwd(), site.mlflow_tracking_uri, places.api)
    findings.append(readiness.nights(places.api, site.ping_url_env))
    VisibleConsole().print(doctors.table(findings))
    return 0 if doctors.ready(findings) else 1


def repro(experiment: ExperimentArgument, /) -> int:
    """Reproduce an experiment with DVC.

    For example `agentfly repro quickstart`.
    """
    return versioning.reproduce(experiment, Path.cwd())


def prefect(*words: Annotated[str, Parameter(allow_leading_hyphen=True)]) -> None:
    """Run any Prefect command on this project's state.

    For example `agentfly prefect server start`.

    Before a worker starts, flow runs of dead processes are marked Crashed.
    """
    places = settle(Path.cwd())
    if words[:2] == ("worker", "start") and answers(places.api):
        crash_dead()
    prefect_command(places, list(words))
