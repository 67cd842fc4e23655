"""Before a run starts or continues: is it the same run, is there a similar one, is it finished?"""

from __future__ import annotations

from collections.abc import Iterator

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
from agentfly_core.experiment.run_layout import finished_summary, record_of
from agentfly_core.records.run_record import Summary
from agentfly_core.runs.listing import continuing
from agentfly_core.runs.run import known_run
from agentfly_core.runs.run_names import shorter_run


def as_begun(experiment: Experiment, name: str, accepts: bool) -> Experiment:
    """Return the experiment with the code that its run continues under.

    Raises ValueError for other settings than the run's, and for other code unless `accepts` and the
    run has steps left.
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


def notes_on_new(experiment: Experiment, name: str, command: str) -> Iterator[str]:
    """Name the runs that the user may want to continue instead of starting this one: with fewer
    steps, or with the code before an edit. `command` is the command as typed.
    """
    store, settings = experiment.store, experiment.settings.model_dump(mode="json")
    if record_of(store, name) is not None:
        return
    if shorter := shorter_run(store, settings):
        steps = shorter["settings"]["steps"]
        yield f"{shorter['name']} has these settings and steps={steps}. To continue it instead:"
        yield f"  {command} --run {shorter['name']}"
    if edit := before_edit(store, settings, experiment.code):
        record, lines = edit
        old, command = record["name"], continuing(store, record["name"], record)
        differs = f"its code differs from that of {old}:\n{listed(lines)}"
        if lines:
            command = f"{command} --accept-code"
        else:
            differs = f"{old}, which works under the same code, began under other code."
        yield f"Another run begins, {name}: {differs}"
        if finished_summary(store, old, experiment.settings.steps) is None:
            yield f"This continues {old}:\n  {command}"


def finished_on_data(experiment: Experiment, name: str) -> Summary | None:
    """Return the summary of a run that has done all its steps on the experiment's dataset."""
    store = experiment.store
    summary = finished_summary(store, name, experiment.settings.steps)
    if summary is None:
        return None
    data = store.find(StageKeys(experiment.settings).prepare())
    before = known_run(store, name).get("dataset_digest")
    return summary if data and before in (None, data.digest) else None
