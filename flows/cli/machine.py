"""Commands about this machine and this project: its files, checks, DVC and Prefect."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
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
from flows.nights import alarms

SHIPPED = Path(__file__).resolve().parents[1]
TEMPLATE, LISTS = SHIPPED / "project_template", SHIPPED / "requirements"


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
    files = template()
    if there := [name for name in files if (folder / name).exists()]:
        raise ValueError(f"{folder} has {', '.join(there)} already, and nothing was written.")
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    if shutil.which("git"):
        inside = ["git", "rev-parse", "--is-inside-work-tree"]
        if subprocess.run(inside, cwd=folder, capture_output=True, check=False).returncode:
            subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    print(f"{folder} has {', '.join(sorted(files))}. Read its README.md, then, in it:")
    print("agentfly train market")


def template() -> dict[str, str]:
    """Return the files of a new project by path; shipped files end in .txt, `dot-` is a dot."""
    return {
        str(path.relative_to(TEMPLATE)).removesuffix(".txt").replace("dot-", "."): path.read_text()
        for path in sorted(TEMPLATE.rglob("*.txt"))
    }


def requirements(machine: Literal["cpu", "gpu"], /) -> None:
    """Print the packages that were tested together.

    For example `agentfly requirements cpu`.

    Args:
        machine: the hardware that vLLM runs on
    """
    print((LISTS / f"{machine}.txt").read_text(), end="")
