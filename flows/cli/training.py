"""Commands on one run: train, fork, tag and open it."""

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Group, Parameter

from agentfly_core.pipeline.loop.forking import check_start, forked_run
from agentfly_core.runs.listing import run_named
from agentfly_core.runs.run import known_run
from agentfly_core.runs.run_request import RunRequest
from agentfly_core.runs.run_tags import change_tags
from flows import dvc_outputs
from flows.cli.arguments import HERE, RUNS, SITES, ExperimentArg, Override, RunArg, StoreArg, Where
from flows.experiments import load_experiment
from flows.local.display import show_summary
from flows.local.mlflow_ui import Ui, open_page
from flows.local.terminal import typed
from flows.orchestration import trained
from flows.reporting import reported
from flows.store import store_at


@Parameter(name="*", group=Group("Run", sort_key=1))
@dataclass(frozen=True)
class RunOptions:
    """The run that a command starts or continues: `RunOptions("mine", tag=("baseline",))`.

    Args:
        run: the run's name (default: EXPERIMENT-DIGEST, with a digest of the settings, so that the
            same command continues the run)
        new: start a new run; if the name is taken, the new run is called NAME-2, NAME-3, ...
        accept_code: continue a run although your code changed; run.json then records the change
        tag: a word that `agentfly list` shows and filters by; may be repeated
    """

    run: Annotated[str, RUNS] = ""
    new: bool = False
    accept_code: bool = False
    tag: tuple[str, ...] = ()


NEXT = RunOptions()


def train(
    target: ExperimentArg, /, *overrides: Override, where: Where = HERE, options: RunOptions = NEXT
) -> None:
    """Start a run, or continue it."""
    arguments = where.of_flow(target, overrides)
    experiment = load_experiment(**arguments)
    name = experiment.run_name(options.run, options.new)
    request = RunRequest(experiment, name)
    request.check_new()
    check_start(request)
    if not (options.run or options.new):
        for note in request.notes(typed.get()):
            print(note, flush=True)
    request.check(options.accept_code)
    store, settings = experiment.store, experiment.settings
    change_tags(store, name, options.tag, [])
    summary = reported(request) or trained(request, arguments)
    if dvc_outputs.wanted():
        dvc_outputs.write_run(store, settings.own_steps, summary)
    show_summary(store, summary)


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

    Args:
        origin: the run, and the step to continue from
        site: name of a file in ./conf/site (default: the site of the run)
    """
    experiment, settings, at = forked_run(store_at(store_uri), origin, overrides)
    train(experiment, *settings, where=Where(site or at, store_uri), options=options)


def tag(
    run: RunArg,
    /,
    *words: Annotated[str, Parameter(name="WORD")],
    remove: tuple[str, ...] = (),
    store_uri: StoreArg = "",
) -> None:
    """Add tags to a run, or remove tags.

    Args:
        words: tags to add, such as baseline; `agentfly list` shows and filters by tags
        remove: a tag to remove; may be repeated
    """
    store = store_at(store_uri)
    known_run(store, run)
    tags = change_tags(store, run, words, remove)
    print(f"{run}: {' '.join(tags)}" if tags else f"{run} has no tags.")


def open_ui(ui: Ui, run: RunArg, /, *, store_uri: StoreArg = "") -> None:
    """Open a run in the MLflow or Prefect UI."""
    store = store_at(store_uri)
    open_page(store, run_named(store, run), ui)
