"""A run as a command names it: before it is opened, which may start or continue it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

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
from agentfly_core.experiment.run_layout import finished_summary, record_of, run_records
from agentfly_core.records.run_record import RunRecord, Summary
from agentfly_core.runs.listing import continuing
from agentfly_core.runs.run import known_run
from agentfly_core.store.store import Store
from agentfly_core.system.formats.json_value import JSON


@dataclass(frozen=True)
class RunRequest:
    """An experiment and the name of its run: `RunRequest(experiment, "mine")`."""

    experiment: Experiment
    name: str

    def checked(self, accept: bool) -> RunRequest:
        """The request with the code that the run continues under.

        Raises ValueError for settings that differ from the run's, and for edited code unless
        `accept` and the run has steps left.
        """
        experiment, name, store = self.experiment, self.name, self.experiment.store
        refuse_other_settings(store, name, experiment.settings)
        code = experiment.code
        if accept:
            if finished_summary(store, name, experiment.settings.steps):
                refuse_finished(store, name, code)
            accept_code(store, name, experiment.settings.code, code)
        refuse_other_code(store, name, code)
        record = record_of(store, name)
        if record is None:
            return self
        settings = experiment.settings.with_code(under(experiment.settings.code, record))
        return replace(self, experiment=experiment.on(settings))

    def notes(self, command: str) -> Iterator[str]:
        """Name runs to continue instead of starting this one: with fewer steps, or with the code
        before an edit. `command` is the command as typed.
        """
        experiment, store = self.experiment, self.experiment.store
        settings = experiment.settings.model_dump(mode="json")
        if record_of(store, self.name) is not None:
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
            yield f"Another run begins, {self.name}: {differs}"
            if finished_summary(store, old, experiment.settings.steps) is None:
                yield f"This continues {old}:\n  {command}"

    def finished(self) -> Summary | None:
        """The summary of a run that has done all its steps on the experiment's dataset."""
        store, settings = self.experiment.store, self.experiment.settings
        if (summary := finished_summary(store, self.name, settings.steps)) is None:
            return None
        data = store.find(StageKeys(settings).prepare())
        before = known_run(store, self.name).get("dataset_digest")
        return summary if data and before in (None, data.digest) else None


def shorter_run(store: Store, settings: Mapping[str, JSON]) -> RunRecord | None:
    """Return the newest run with these settings but fewer steps."""
    same = [
        run
        for run in run_records(store)
        if {**run["settings"], "steps": 0} == {**settings, "steps": 0}
        and int(str(run["settings"]["steps"])) < int(str(settings["steps"]))
    ]
    return max(same, key=lambda run: run["created_ms"], default=None)
