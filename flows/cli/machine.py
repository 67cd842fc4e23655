"""Commands about this machine and this project: checks, servers, files, DVC and Prefect."""

import asyncio
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.types import Port

from agentfly_core.config import loading
from agentfly_core.runs import versioning
from agentfly_core.runs.tracking.mlflow_client import MlflowStore
from agentfly_core.sandbox import preflight, report
from agentfly_core.sandbox.attacks import ATTACKS
from agentfly_core.sandbox.self_test import attacked
from flows.cli.arguments import ExperimentArg
from flows.deploy import require_deployable
from flows.local import doctor as doctors
from flows.local.flow_run_owners import crash_dead
from flows.local.prefect_server import answers, prefect_command
from flows.local.state_dirs import settle
from flows.local.terminal import VisibleConsole
from flows.local.up import LOG, detached, end, keeper, require_startable, serve, show_status
from flows.new_project import create
from flows.nights import events

LISTS = Path(__file__).resolve().parents[1] / "requirements"
NOTHING = "`agentfly up` does not run for this project ({})."


def doctor(*, sandbox: bool = False) -> int:
    """Check this machine; show remedies for missing parts.

    Args:
        sandbox: attack the sandbox, and report which attacks it stops
    """
    if sandbox:
        chosen = preflight.chosen()
        outcomes = asyncio.run(attacked(chosen, ATTACKS))
        VisibleConsole().print(report.table(chosen, outcomes))
        return 0 if all(outcome.stopped for outcome in outcomes) else 1
    site, places = loading.site("local"), settle()
    findings = doctors.examine(Path.cwd(), site.mlflow_tracking_uri, places.api)
    findings.append(events.nights(places.api, site.ping_url_env))
    VisibleConsole().print(doctors.table(findings))
    return 0 if doctors.ready(findings) else 1


def admit(
    model: Annotated[str, Parameter(name="MODEL")],
    /,
    *,
    dtype: Literal["float32", "bfloat16"] = "float32",
) -> int:
    """Try whether this machine can train a model.

    The command checks the model's files, then the tokenizer, the learner and the samplers, in the
    order in which a run needs them.

    Args:
        model: a hub id, a folder, `package:NAME` or `nano:NAME`
        dtype: the type of the weights
    """
    from agentfly_core.pipeline import admission  # loads torch, which takes seconds

    site, console, admitted = loading.site("local"), VisibleConsole(), True
    # otherwise DeepSpeed guesses it when it is imported, and prints that
    os.environ.setdefault("DS_ACCELERATOR", site.device)
    with tempfile.TemporaryDirectory(prefix="agentfly-") as scratch, console.status(model):
        for proof in admission.admit(model, dtype, site, Path(scratch)):
            mark = "ok" if proof.passed else "NO"
            console.print(f"{mark:<4}{proof.name:<26}{proof.detail}", soft_wrap=True)
            admitted = admitted and proof.passed
    console.print(f"{model} {'can' if admitted else 'cannot'} be trained on this machine.")
    return 0 if admitted else 1


def up(
    *,
    detach: bool = False,
    status: bool = False,
    prefect_port: Port = 4200,
    mlflow_port: Port = 5000,
) -> int:
    """Serve Prefect and MLflow, and run triggered flows.

    Args:
        detach: return as soon as all programs work; they keep running
        status: print the state of all programs; the exit status is 0 if all programs work
    """
    places, ports = settle(), (prefect_port, mlflow_port)
    place = MlflowStore.choose(places.state, loading.site("local").mlflow_tracking_uri)
    if status and keeper(places.state):
        return show_status(place)
    if status:
        print(NOTHING.format(places.state))
        return 1
    places.state.chmod(0o700)
    require_startable(places, ports[:1] if place.served else ports)
    require_deployable()
    with suppress(FileNotFoundError):
        (places.state / LOG).replace(places.state / f"{LOG}.1")
    return detached(place, ports) if detach else serve(place, ports)


def down() -> None:
    """Stop all processes that `agentfly up` started."""
    state = settle().state
    print("Ended." if end(state) else NOTHING.format(state))


def repro(experiment: ExperimentArg, /) -> int:
    """Reproduce an experiment with DVC."""
    return versioning.reproduce(experiment, Path.cwd())


def prefect(*words: Annotated[str, Parameter(allow_leading_hyphen=True)]) -> None:
    """Run any Prefect command with this project's database.

    The command `prefect worker start` first marks flow runs of dead processes as Crashed.
    """
    places = settle()
    if words[:2] == ("worker", "start") and answers(places.api):
        crash_dead()
    prefect_command(places, list(words))


def init(folder: Annotated[Path, Parameter(name="DIR")], /) -> None:
    """Write a small project with a tool, a reward and tests.

    Args:
        folder: the project's folder; created if missing
    """
    files = create(folder)
    print(
        f"{folder} was created with {', '.join(files)}. Read its README.md. Then run this command "
        f"in {folder}:"
    )
    print("agentfly train market")


def requirements(machine: Literal["cpu", "gpu"], /) -> None:
    """Print the packages that were tested together.

    Args:
        machine: the hardware on which vLLM runs
    """
    print((LISTS / f"{machine}.txt").read_text(), end="")
