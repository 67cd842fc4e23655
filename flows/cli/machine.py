"""Commands about this machine and this project: checks, DVC and Prefect."""

from __future__ import annotations

import asyncio
from argparse import REMAINDER, Namespace
from pathlib import Path

from agentfly_core.config import loading
from agentfly_core.runs import versioning
from agentfly_core.sandbox import preflight, report
from agentfly_core.sandbox.attacks import ATTACKS
from agentfly_core.sandbox.self_test import attacked
from flows.cli.arguments import Commands
from flows.local import doctor as doctors
from flows.local.flow_run_owners import tidy
from flows.local.prefect_server import prefect_command, reach
from flows.local.state_dirs import settle
from flows.local.terminal import VisibleConsole
from flows.nights import readiness


def add(commands: Commands) -> None:
    """Add the commands about this machine."""
    _add_checks(commands)
    _add_prefect(commands)


def _add_checks(commands: Commands) -> None:
    """The commands that look at the machine, and reproduce on it."""
    checking = commands.add("doctor", doctor)
    checking.add_argument(
        "--sandbox", action="store_true", help="attack the sandbox, and say what it stops"
    )
    reproducing = commands.add("repro", repro)
    reproducing.add_argument("experiment", help="name of a file in ./conf")


def _add_prefect(commands: Commands) -> None:
    """The command that is Prefect's own."""
    words = commands.add("prefect", prefect)
    words.add_argument("words", nargs=REMAINDER)


def doctor(arguments: Namespace) -> int:
    """Check the machine, or attack its sandbox."""
    if arguments.sandbox:
        sandbox = preflight.chosen()
        outcomes = asyncio.run(attacked(sandbox, ATTACKS))
        VisibleConsole().print(report.table(sandbox, outcomes))
        return 0 if all(outcome.stopped for outcome in outcomes) else 1
    site, places = loading.site("local"), settle(Path.cwd())
    findings = doctors.examine(Path.cwd(), site.mlflow_tracking_uri, places.api)
    findings.append(readiness.nights(reach(places), site.ping_url_env))
    VisibleConsole().print(doctors.table(findings))
    return 0 if doctors.ready(findings) else 1


def repro(arguments: Namespace) -> int:
    """Reproduce an experiment with DVC."""
    return versioning.reproduce(arguments.experiment, Path.cwd())


def prefect(arguments: Namespace) -> int:
    """Any Prefect command on the project's own Prefect state.

    Before a worker starts, flow runs whose process is dead are marked Crashed.
    """
    places = settle(Path.cwd())
    if arguments.words[:2] == ["worker", "start"]:
        tidy(places)
    prefect_command(places, arguments.words)
