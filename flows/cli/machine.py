"""Commands about this machine and this project: its files, checks, DVC and Prefect."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from agentfly_core.config import loading
from agentfly_core.runs import versioning
from agentfly_core.sandbox import preflight, report
from agentfly_core.sandbox.attacks import ATTACKS
from agentfly_core.sandbox.self_test import attacked
from flows.cli.arguments import ExperimentArg
from flows.local import doctor as doctors
from flows.local.flow_run_owners import crash_dead
from flows.local.prefect_server import answers, prefect_command
from flows.local.state_dirs import settle
from flows.local.terminal import VisibleConsole
from flows.new_project import create
from flows.nights import alarms

LISTS = Path(__file__).resolve().parents[1] / "requirements"


def doctor(*, sandbox: bool = False) -> int:
    """Check this machine; show remedies for missing parts.

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
    findings.append(alarms.nights(places.api, site.ping_url_env))
    VisibleConsole().print(doctors.table(findings))
    return 0 if doctors.ready(findings) else 1


def repro(experiment: ExperimentArg, /) -> int:
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


def init(folder: Annotated[Path, Parameter(name="DIR")], /) -> None:
    """Write a small project with a tool, a reward and tests.

    For example `agentfly init my_project`.

    Args:
        folder: where; made if missing
    """
    files = create(folder)
    print(f"{folder} has {', '.join(files)}. Read its README.md, then, in it:")
    print("agentfly train market")


def requirements(machine: Literal["cpu", "gpu"], /) -> None:
    """Print the packages that were tested together.

    For example `agentfly requirements cpu`.

    Args:
        machine: the hardware that vLLM runs on
    """
    print((LISTS / f"{machine}.txt").read_text(), end="")
