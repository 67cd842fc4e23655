"""The commands that train: they start a run, also from a step of another, continue it, or show how
a finished one ended.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from cyclopts import Group, Parameter

from agentfly_core.config.experiment import Fork
from agentfly_core.config.reference import run_step
from agentfly_core.experiment.checks import check_run
from agentfly_core.experiment.continuing import refuse_finished, refuse_other_settings
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.experiment.run_code import (
    accept_code,
    before_edit,
    listed,
    refuse_other_code,
    under,
)
from agentfly_core.experiment.run_layout import RunLayout, finished_summary, record_of
from agentfly_core.pipeline.forking import forked, require_done, require_origin
from agentfly_core.records.run_record import Summary
from agentfly_core.runs.listing import continuing, experiment_of, in_store
from agentfly_core.runs.run import known_run, name_of, refuse_if_open
from agentfly_core.runs.run_names import run_named, shorter_run
from agentfly_core.runs.run_tags import change_tags
from agentfly_core.store.store import ArtifactKey, Store
from agentfly_core.system.formats.checksummed_json import Damaged
from agentfly_core.system.formats.text import counted, fault, redact
from agentfly_core.tracking.mlflow_client import MlflowStore
from flows import dvc_outputs
from flows.cli import completion
from flows.cli.arguments import WHERE, NamedExperiment, Override, StoreArgument, typed
from flows.local.display import summary_table
from flows.local.orchestration import orchestrated
from flows.local.state_dirs import Places
from flows.local.terminal import VisibleConsole
from flows.reporting import report_again
from flows.store import store_at

logger = logging.getLogger(__name__)


@Parameter(name="*", group=Group("Run", sort_key=1))
@dataclass(frozen=True)
class RunOptions:
    """Which run a command starts or continues: `RunOptions("mine", tag=("baseline",))`.

    Args:
        run: the run's name (default: EXPERIMENT-DIGEST of the settings, so that the same command
            continues it)
        new: start another run even if there is one: NAME-2, NAME-3, ...
        accept_code: continue a run although your code changed; recorded in run.json
        tag: a word that `agentfly list` shows of the run and filters by; may be given again
    """

    run: Annotated[str, Parameter(completer=completion.runs)] = ""
    new: bool = False
    accept_code: bool = False
    tag: tuple[str, ...] = ()


NEXT = RunOptions()
"""The run that the settings name."""


def train(target: NamedExperiment, *, options: RunOptions = NEXT) -> None:
    """Start a run, or continue it.

    For example `agentfly train quickstart seed=1 --run mine`.
    """
    experiment = target.load()
    name = name_of(experiment, options.run, options.new)
    check_run(experiment, name)
    if not options.run:
        _tell_of_edit(experiment, name)
    experiment = _as_begun(experiment, name, options.accept_code)
    if options.tag:
        change_tags(experiment.store, name, options.tag, [])
    summary = None
    dataset = StageKeys(experiment.settings).prepare()
    if finished := _finished(experiment.store, name, experiment.settings.steps, dataset):
        try:
            summary = report_again(experiment, name, finished)
        except Damaged as damage:
            logger.warning(
                "%s The run goes through its steps again, and makes what is damaged.", damage
            )
    summary = summary or _trained(experiment, name, target.arguments)
    if dvc_outputs.wanted():
        dvc_outputs.write_run(experiment.store, experiment.settings.own_steps, summary)
    show_summary(experiment.store, summary)


def _as_begun(experiment: Experiment, name: str, accepts: bool) -> Experiment:
    """The experiment as a run that is there began with it; raises ValueError for other settings,
    and for other code unless that is accepted by a run that has steps to do.
    """
    store, code = experiment.store, experiment.code
    refuse_other_settings(store, name, experiment.settings)
    if accepts:
        if finished_summary(store, name, experiment.settings.steps):
            refuse_finished(store, name, code)
        accept_code(store, name, experiment.settings.code, code)
    refuse_other_code(store, name, code)
    record = record_of(store, name)
    if record is None:
        return experiment
    return experiment.on(experiment.settings.with_code(under(experiment.settings.code, record)))


def _tell_of_edit(experiment: Experiment, name: str) -> None:
    """Where a run begins because the code of one that is there was edited: what differs, and how
    that one continues, unless it has ended.
    """
    store = experiment.store
    if record_of(store, name) is not None:
        return
    settings = experiment.settings.model_dump(mode="json")
    if shorter := shorter_run(store, settings):
        print(
            f"{shorter['name']} has these settings and steps={shorter['settings']['steps']}. To "
            f"continue it instead:\n  {typed.get()} --run {shorter['name']}",
            flush=True,
        )
    if edit := before_edit(store, settings, experiment.code):
        record, lines = edit
        old, command = record["name"], continuing(store, record["name"], record)
        differs = f"its code differs from that of {old}:\n{listed(lines)}"
        if lines:
            command = f"{command} --accept-code"
        else:
            differs = f"{old}, which works under the same code, began under other code."
        print(f"Another run begins, {name}: {differs}", flush=True)
        if finished_summary(store, old, experiment.settings.steps) is None:
            print(f"This continues {old}:\n  {command}", flush=True)


def fork(
    origin: Annotated[str, Parameter(name="RUN@STEP", completer=completion.runs)],
    /,
    *overrides: Override,
    site: Annotated[str, Parameter(group=WHERE, completer=completion.sites)] = "",
    store_uri: StoreArgument = "",
    options: RunOptions = NEXT,
) -> None:
    """Continue from a step of a run with other settings.

    For example `agentfly fork mine@7 update.learning_rate=3e-5`.

    Args:
        origin: the run, and the step to continue from
        site: a file in ./conf/site (default: where the run was)
    """
    store = store_at(store_uri)
    policy = run_step(f"run:{run_named(store, origin)}")
    if policy is None or policy.step == 0:
        raise ValueError(
            f"Got {origin!r}, expected RUN@STEP with a step of 1 or more, such as "
            "quickstart-1f2e3d4c@7."
        )
    record = known_run(store, policy.run)
    experiment, own = experiment_of(record)
    fork = Fork(run=policy.run, step=policy.step)
    require_done(store, fork)
    settings = (*own, *forked(fork, overrides))
    site = site or record["site"]["name"]
    target = NamedExperiment(experiment, settings, site=site, store=store_uri)
    loaded = target.load()
    if record_of(store, name_of(loaded, options.run, options.new)) is None:
        require_origin(store, loaded.settings)
    train(target, options=options)


def show_places(places: Places, tracking_uri: str) -> None:
    """Print the addresses of Prefect and MLflow, each with the reason."""
    mlflow = MlflowStore.choose(places.state, tracking_uri)
    for place in (places.prefect, f"MLflow: {mlflow.uri} ({mlflow.why})"):
        print(redact(str(place)), flush=True)


def show_summary(store: Store, summary: Summary) -> None:
    """The table at the end of a run, and the commands that open it elsewhere."""
    opening = {
        ui: in_store(store, "agentfly", "open", ui.lower(), summary["run"])
        for ui in ("MLflow", "Prefect")
    }
    VisibleConsole().print(summary_table(summary, opening), soft_wrap=True)


def _trained(experiment: Experiment, name: str, arguments: Mapping[str, Any]) -> Summary:
    refuse_if_open(experiment.store, name)
    with orchestrated(name, partial(_continuing, experiment.store, name)) as settled:
        from flows.train import train as flow

        show_places(settled, experiment.site.mlflow_tracking_uri)
        steps = [RunLayout(name).step(number) for number in RunLayout(name).steps(experiment.store)]
        if done := sum(experiment.store.holds(step.policy) for step in steps):
            print(
                f"{name} continues: {counted(done, 'step')} of {experiment.settings.steps} done.",
                flush=True,
            )
        try:
            summary: Summary = flow(**arguments, run=name)
        except Exception as error:  # Prefect's own, after the end of the run
            dataset = StageKeys(experiment.settings).prepare()
            finished = _finished(experiment.store, name, experiment.settings.steps, dataset)
            if finished is None:
                raise
            logger.warning("The run is done, but Prefect could not be told: %s", fault(error))
            return finished
    return summary


def _finished(store: Store, name: str, steps: int, dataset: ArtifactKey) -> Summary | None:
    """The summary of a run that has done all its steps on this dataset."""
    summary = finished_summary(store, name, steps)
    if summary is None:
        return None
    data = store.find(dataset)
    before = known_run(store, name).get("dataset_digest")
    return summary if data and before in (None, data.digest) else None


def _continuing(store: Store, name: str) -> str:
    record = record_of(store, name)
    if record is None:
        return typed.get()
    command = continuing(store, name, record)
    own = record["settings"].get("code")
    return f"{command} (and --accept-code after a change of your code)" if own else command
