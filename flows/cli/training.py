"""Commands on one run: train, fork, tag and open it."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from cyclopts import Group, Parameter

from agentfly_core.config.experiment import Fork
from agentfly_core.config.reference import run_step
from agentfly_core.experiment.run_layout import record_of
from agentfly_core.experiment.run_policies import of_run
from agentfly_core.pipeline.loop.forking import forked, require_origin
from agentfly_core.records.run_record import Summary
from agentfly_core.runs.listing import continuing, experiment_of, run_named
from agentfly_core.runs.run import known_run, refuse_if_open
from agentfly_core.runs.run_request import RunRequest
from agentfly_core.runs.run_tags import change_tags, tags_of
from agentfly_core.store.store import Store
from agentfly_core.system.formats.text import fault
from flows import dvc_outputs
from flows.cli.arguments import (
    HERE,
    RUNS,
    SITES,
    ExperimentArg,
    Override,
    RunArg,
    StoreArg,
    Where,
    flow_arguments,
    typed,
)
from flows.experiments import load_experiment
from flows.local.display import show_places, show_summary
from flows.local.mlflow_ui import Ui, open_page
from flows.orchestration import orchestrated
from flows.reporting import reported
from flows.store import store_at

logger = logging.getLogger(__name__)


@Parameter(name="*", group=Group("Run", sort_key=1))
@dataclass(frozen=True)
class RunOptions:
    """The run that a command starts or continues: `RunOptions("mine", tag=("baseline",))`.

    Args:
        run: the run's name (default: EXPERIMENT-DIGEST of the settings, so that the same command
            continues it)
        new: start another run even if this one exists: NAME-2, NAME-3, ...
        accept_code: continue a run although your code changed; recorded in run.json
        tag: a word that `agentfly list` shows and filters by; may be repeated
    """

    run: Annotated[str, RUNS] = ""
    new: bool = False
    accept_code: bool = False
    tag: tuple[str, ...] = ()


NEXT = RunOptions()
"""The default: the run that is named after the settings."""


def train(
    target: ExperimentArg, /, *overrides: Override, where: Where = HERE, options: RunOptions = NEXT
) -> None:
    """Start a run, or continue it.

    For example `agentfly train quickstart seed=1 --run mine`.
    """
    arguments = flow_arguments(target, overrides, where)
    experiment = load_experiment(**arguments)
    name = experiment.run_name(options.run, options.new)
    request = RunRequest(experiment, name)
    request.check_new()
    if not (options.run or options.new):
        for note in request.notes(typed.get()):
            print(note, flush=True)
    request.check(options.accept_code)
    store, settings = experiment.store, experiment.settings
    if options.tag:
        change_tags(store, name, options.tag, [])
    summary = reported(request) or trained(request, arguments, typed.get)
    if dvc_outputs.wanted():
        dvc_outputs.write_run(store, settings.own_steps, summary)
    show_summary(store, summary)


def trained(
    request: RunRequest, arguments: Mapping[str, Any], command: Callable[[], str]
) -> Summary:
    """Run the flow and return the run's summary. Errors of Prefect after the run's end are logged.

    `command` returns the command as typed.
    """
    name, store, site = request.name, request.experiment.store, request.experiment.site
    # checked early, because the start of Prefect's server takes seconds
    refuse_if_open(store, name)

    def again() -> str:
        record = record_of(store, name)
        return continuing(store, name, record) if record else command()

    with orchestrated(name, again) as places:
        from flows.train import train as flow

        show_places(places, site.mlflow_tracking_uri)
        try:
            summary: Summary = flow(**arguments, run=name)
        except Exception as error:  # an error of Prefect after the end of the run
            if (stored := request.finished()) is None:
                raise
            logger.warning(
                "The run is finished, but Prefect could not be reached: %s", fault(error)
            )
            summary = stored
    return summary


def fork(
    origin: Annotated[str, Parameter(name="RUN@STEP"), RUNS],
    /,
    *overrides: Annotated[
        Override,
        Parameter(help="settings that differ from the run's, such as update.learning_rate=3e-5"),
    ],
    site: Annotated[str, SITES] = "",
    store_uri: StoreArg = "",
    options: RunOptions = NEXT,
) -> None:
    """Continue from a step of a run with other settings.

    For example `agentfly fork mine@7 update.learning_rate=3e-5`.

    Args:
        origin: the run, and the step to continue from
        site: a file in ./conf/site (default: the run's site)
    """
    store = store_at(store_uri)
    experiment, settings, at = forked_run(store, origin, overrides)
    where = Where(site or at, store_uri)
    loaded = load_experiment(**flow_arguments(experiment, settings, where))
    begins = record_of(store, loaded.run_name(options.run, options.new)) is None
    if begins and loaded.settings.fork:
        require_origin(store, loaded.settings, loaded.settings.fork)
    train(experiment, *settings, where=where, options=options)


def forked_run(
    store: Store, origin: str, overrides: Sequence[str]
) -> tuple[str, tuple[str, ...], str]:
    """Return the experiment, the overrides and the site of a new run that continues from RUN@STEP.

    Raises ValueError for another reference, and for a step without a policy.
    """
    policy = run_step(f"run:{run_named(store, origin)}")
    if policy is None or policy.step == 0:
        raise ValueError(
            f"Got {origin!r}, expected RUN@STEP with a step of 1 or more, such as "
            "quickstart-1f2e3d4c@7."
        )
    record = known_run(store, policy.run)
    of_run(store, policy, "RUN@STEP")
    experiment, own = experiment_of(record)
    fork = Fork(run=policy.run, step=policy.step)
    return experiment, (*own, *forked(fork, overrides)), record["site"]["name"]


def tag(
    run: RunArg,
    /,
    *words: Annotated[str, Parameter(name="WORD")],
    remove: tuple[str, ...] = (),
    store_uri: StoreArg = "",
) -> None:
    """Put words on a run, to find it again.

    For example `agentfly tag mine baseline`.

    Args:
        words: such as baseline
        remove: a tag to remove; may be repeated
    """
    store = store_at(store_uri)
    known_run(store, run)
    changed = bool(words or remove)
    tags = change_tags(store, run, words, remove) if changed else tags_of(store, run)
    print(f"{run}: {' '.join(tags)}" if tags else f"{run} has no tags.")


def open_ui(ui: Ui, run: RunArg, /, *, store_uri: StoreArg = "") -> None:
    """Open a run in the MLflow or Prefect UI.

    For example `agentfly open mlflow mine`.
    """
    store = store_at(store_uri)
    open_page(store, run_named(store, run), ui)
