"""What each command of the command line does; what is slow to import is imported by those who need it."""

from __future__ import annotations

import asyncio
import json
import logging
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from agentfly_core.artifacts import keys
from agentfly_core.artifacts.lock import Locked, LockLost
from agentfly_core.artifacts.store import Store
from agentfly_core.config import loading as experiments
from agentfly_core.formats import tracebacks
from agentfly_core.formats.checksummed_json import Damaged
from agentfly_core.formats.text import fault, redact, words_of
from agentfly_core.pipeline import checks
from agentfly_core.pipeline.gates import GateClosed
from agentfly_core.runs import episodes, versioning
from agentfly_core.runs.context import ExperimentContext
from agentfly_core.runs.listing import continuing, in_store
from agentfly_core.runs.run import links_of, name_of, record_of, refuse_if_open, refuse_other_settings, summary_of
from agentfly_core.runs.tracking import Place
from agentfly_core.sandbox import preflight, report
from agentfly_core.sandbox.attacks import ATTACKS
from agentfly_core.sandbox.backends import Unavailable
from agentfly_core.sandbox.self_test import attacked
from agentfly_core.system.service import ServiceLost
from flows import dvc_outputs
from flows.context import context_of, store_at
from flows.local import doctor as doctors
from flows.local.display import logging_to, summary_table
from flows.local.mlflow_ui import open_run
from flows.local.prefect_server import open_flow_run, prefect_api, prefect_command
from flows.local.state_dirs import Places, settle
from flows.session import tell_again

logger = logging.getLogger(__name__)


class Stopped(RuntimeError):
    """A command came to an end before its work was done; the message says why, and how it goes on."""


LONGEST_CAUSE = 20_000
MISTAKES = (ValueError, Locked, LockLost, GateClosed, ServiceLost, Unavailable, OSError, Stopped)
Words = Mapping[str, Any]


def train(arguments: Namespace) -> int:
    """Start or continue a run; a finished one shows its summary at once."""
    context = _lab(arguments)
    name = name_of(context, arguments.run, arguments.new)
    refuse_other_settings(context.store, name, context.science)
    summary = _told(context, name) or _trained(arguments, context, name)
    if dvc_outputs.wanted():
        dvc_outputs.write_run(context, name, summary)
    show_summary(context.store, summary)
    return 0


def evaluate(arguments: Namespace) -> int:
    """Play a policy on held-out problems."""
    _lab(arguments)
    with orchestrated("evaluate", lambda: arguments.typed):
        from flows.evaluate import evaluate as flow

        found = flow(**_flow_arguments(arguments), policy=arguments.policy)
    low, high, problems = found["interval_low"], found["interval_high"], found["problems"]
    print(f"{found['success']:.1%} of {problems} held-out problems solved, 95 % interval {low:.1%} to {high:.1%}.")
    return 0


def prepare(arguments: Namespace) -> int:
    """Build, check and version the dataset."""
    _lab(arguments)
    with orchestrated("prepare", lambda: arguments.typed):
        from flows.prepare import prepare as flow

        data = flow(**_flow_arguments(arguments))
    print(f"{data.uri}\n{data.digest}")
    return 0


def warm_start(arguments: Namespace) -> int:
    """Make the policy that training starts from."""
    _lab(arguments)
    with orchestrated("warm-start", lambda: arguments.typed):
        from flows.warm_start import warm_start_only as flow

        policy = flow(**_flow_arguments(arguments))
    print(f"{policy.uri}\n{policy.digest}")
    return 0


def resolve(arguments: Namespace) -> int:
    """Write the complete configuration for DVC."""
    dvc_outputs.write_config(_lab(arguments))
    return 0


def config(arguments: Namespace) -> int:
    """Print the resolved settings with where each came from."""
    read = experiments.read(arguments.experiment, arguments.overrides)
    checks.check(read.science)
    place = experiments.site(arguments.site, arguments.store)
    origin = {**read.origin, **experiments.flat(experiments.site_origin(arguments.site, arguments.store), "site.")}
    values = {**experiments.flat(read.science.model_dump(mode="json")), **experiments.flat(place.model_dump(), "site.")}
    table = Table(*(Column(name, overflow="fold") for name in ("setting", "value", "from")), show_edge=False)
    for key, value in values.items():
        table.add_row(key, json.dumps(value), origin[key])
    Console().print(table)
    return 0


def show(arguments: Namespace) -> int:
    """Read episodes in the terminal."""
    step = episodes.read_step(store_at(arguments.store), arguments.run, arguments.step)
    Console().print(episodes.show(step, arguments.worst))
    return 0


def list_runs(arguments: Namespace) -> int:
    """All runs of a store."""
    Console().print(episodes.runs(store_at(arguments.store)), soft_wrap=True)
    return 0


def doctor(arguments: Namespace) -> int:
    """What this machine can run, or what its sandbox stops."""
    if arguments.sandbox:
        return _attacked()
    uri, api = experiments.site("local").mlflow_tracking_uri, settle(Path.cwd()).api
    findings = doctors.examine(Path.cwd(), uri, api)
    Console().print(doctors.table(findings))
    return 0 if doctors.ready(findings) else 1


def _attacked() -> int:
    sandbox = preflight.chosen()
    outcomes = asyncio.run(attacked(sandbox, ATTACKS))
    Console().print(report.table(sandbox, outcomes))
    return 0 if all(outcome.stopped for outcome in outcomes) else 1


def repro(arguments: Namespace) -> int:
    """Reproduce an experiment with DVC."""
    return versioning.reproduce(arguments.experiment, Path.cwd())


def open_ui(arguments: Namespace) -> int:
    """Open a run in the MLflow or the Prefect UI; serves it until interrupted where no server runs."""
    store, name = store_at(arguments.store), arguments.run
    record = record_of(store, name)
    if record is None:
        raise ValueError(f"There is no run {name!r} in {store.uri}; `agentfly list` shows all.")
    ids = links_of(store, name).get({"mlflow": "mlflow_run_ids", "prefect": "prefect_flow_run_ids"}[arguments.ui])
    if not ids:
        again = continuing(store, name, record)
        raise ValueError(f"{arguments.ui} was not reached while {name} was at work. This tells it of the run: {again}")
    places = settle(Path.cwd())
    if arguments.ui == "prefect":
        open_flow_run(places, ids[-1])
    else:
        open_run(Place.choose(places.state, record["site"]["mlflow_tracking_uri"]), ids[-1])
    return 0


def prefect(arguments: Namespace) -> int:
    """Any Prefect command on the project's own Prefect state."""
    prefect_command(settle(Path.cwd()), arguments.words)


def show_places(places: Places, context: ExperimentContext) -> None:
    """Where Prefect and MLflow keep what they hear of a run, and why there."""
    mlflow = Place.choose(places.state, context.site.mlflow_tracking_uri)
    for place in (places.prefect, f"MLflow: {mlflow.uri} ({mlflow.why})"):
        print(redact(str(place)), flush=True)


def show_summary(store: Store, summary: Words) -> None:
    """The table at the end of a run, and the commands that open it elsewhere."""
    opening = {ui: in_store(store, "agentfly", "open", ui.lower(), summary["run"]) for ui in ("MLflow", "Prefect")}
    Console().print(summary_table(summary, opening), soft_wrap=True)


def _trained(arguments: Namespace, context: ExperimentContext, name: str) -> dict[str, Any]:
    refuse_if_open(context.store, name)
    with orchestrated(name, lambda: _continuing(arguments, context, name)) as settled:
        from flows.train import train as flow

        show_places(settled, context)
        try:
            summary: dict[str, Any] = flow(**_flow_arguments(arguments), run=name)
        except Exception as error:  # Prefect's own, after the end of the run
            if (finished := _finished(context, name)) is None:
                raise
            logger.warning("The run is done, but Prefect could not be told: %s", fault(error))
            return finished
    return summary


def _told(context: ExperimentContext, name: str) -> dict[str, Any] | None:
    """The summary of a run that has done all its steps, once MLflow has them; None where some of that is damaged."""
    summary = _finished(context, name)
    try:
        return tell_again(context, name, summary) if summary else None
    except Damaged as damage:
        logger.warning("%s The run goes through its steps again, and makes what is damaged.", damage)
        return None


def _finished(context: ExperimentContext, name: str) -> dict[str, Any] | None:
    """The summary of a run that has done all its steps, on the data that there are now."""
    summary = summary_of(context.store, name)
    if summary is None or summary["steps"] != context.science.steps:
        return None
    return summary if context.store.holds(keys.prepare(context.science).uri) else None


def _continuing(arguments: Namespace, context: ExperimentContext, name: str) -> str:
    record = record_of(context.store, name)
    return continuing(context.store, name, record) if record else str(arguments.typed)


def told(error: BaseException) -> str:
    """What a person is told of an error: a mistake's own words, with the line of their code that it came from, if any.

    Anything else is an error in code: its traceback, without the lines of installed packages.
    """
    if not issubclass(type(error), MISTAKES):  # isinstance would ask the error
        return f"An error in code ended it:\n{tracebacks.trace(error)}\n{fault(error, LONGEST_CAUSE)}"
    words, line = words_of(error).rstrip() or fault(error), tracebacks.own_line(error)
    return words if line is None or line in words else f"{words}\nIt was raised at {line}."


@contextmanager
def orchestrated(what: str, again: Callable[[], str]) -> Iterator[Places]:
    """Prefect for this process: its server starts while the rest is imported, and ends with the block.

    Yields the places of its state. What would be logged on the terminal goes to a file. Raises Stopped, which names
    it, the cause and the command that goes on, `again`, for whatever the block raises, but Locked.
    """
    places = settle(Path.cwd())
    log = places.state / "logs" / what / "flow.log"
    with prefect_api(places) as api:
        import flows.train  # noqa: F401

        with logging_to(log):
            try:
                api.wait()
                yield places
            except Locked:
                raise
            except Exception as error:  # whatever ends it, whoever started it is told how it goes on
                raise Stopped(f"{told(error)}\nThe log is {log}. To go on: {again()}") from error


def _lab(arguments: Namespace) -> ExperimentContext:
    return context_of(arguments.experiment, arguments.overrides, arguments.site, arguments.store)


def _flow_arguments(arguments: Namespace) -> dict[str, Any]:
    return {name: getattr(arguments, name) for name in ("experiment", "overrides", "site", "store")}
