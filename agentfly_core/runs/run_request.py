"""Check a run before a command starts or continues it, and point out similar runs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from agentfly_core.experiment.checks import check_beginning
from agentfly_core.experiment.continuing import refuse_other_settings
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.experiment.run_layout import finished_summary, record_of, run_records
from agentfly_core.experiment.user_code import (
    accept_code,
    changed,
    continued,
    edited,
    refuse_other_code,
)
from agentfly_core.records.run_record import RunRecord, Summary
from agentfly_core.runs.run import known_run
from agentfly_core.store.store import Store
from agentfly_core.system.formats.json_value import JSON


@dataclass(frozen=True)
class RunRequest:
    """An experiment and the name of its run: `RunRequest(experiment, "mine")`."""

    experiment: Experiment
    name: str

    def check_new(self) -> None:
        """Check a new run before its start. Existing runs are not checked.

        Raises ValueError for unusable settings. Also raises ValueError if the policy or the chat
        service of a frozen (untrained) speaker does not exist.
        """
        if record_of(self.experiment.store, self.name) is None:
            _ = self.experiment.frozen  # raises for a missing policy or chat service
            check_beginning(self.experiment.settings)

    def check(self, accept: bool) -> None:
        """Raise ValueError if settings or the author's code changed since the run began.

        If `accept` is True, changed code is accepted and recorded, unless the run has finished all
        its steps. Some settings, such as `keep_policies`, may change; see `refuse_other_settings`.
        A new run is not checked.
        """
        settings, name, store = self.experiment.settings, self.name, self.experiment.store
        if record_of(store, name) is None:
            return
        refuse_other_settings(known_run(store, name), settings)
        if accept and finished_summary(store, name, settings.steps) is None:
            accept_code(store, name, settings.code)
        # read again, because `accept_code` changes the record
        refuse_other_code(known_run(store, name), settings.code)

    def notes(self, command: str) -> Iterator[str]:
        """Yield messages for the user if a similar run exists that could be continued instead.

        The similar run has fewer steps, or was started with other code. `command` is the command
        as the user typed it.
        """
        store, settings = self.experiment.store, self.experiment.settings
        if record_of(store, self.name) is not None:
            return
        if (other := similar_run(store, settings.model_dump(mode="json"))) is None:
            return
        old, steps = other["name"], other["settings"]["steps"]
        modules = changed(other, settings.code)
        names = ", ".join(edited(other) or modules)
        but = f"other code of {names}" if modules else f"steps={steps}"
        yield f"Starting {self.name}. The run {old} has the same settings, but {but}."
        try:
            refuse_other_settings(other, settings)
        except ValueError as refusal:  # a changed `steps` may need a fork
            yield str(refusal)
            return
        if finished_summary(store, old, settings.steps) is None:
            accept = " --accept-code" if modules else ""
            yield f"To continue {old} instead:\n  {command} --run {old}{accept}"

    def finished(self) -> Summary | None:
        """Return the summary of the run if all steps are finished, else None.

        If the dataset of the experiment has changed since the run, the result is None, too.
        """
        store, settings = self.experiment.store, self.experiment.settings
        if (summary := finished_summary(store, self.name, settings.steps)) is None:
            return None
        record = known_run(store, self.name)
        code = continued(settings.code, record)
        data = store.find(StageKeys(settings.with_code(code)).prepare())
        return summary if data and record.get("dataset_digest") in (None, data.digest) else None


def similar_run(store: Store, settings: Mapping[str, JSON]) -> RunRecord | None:
    """Return an existing run that could be continued instead of starting a run with `settings`.

    The existing run may have other code or fewer steps. All other settings are the same. If
    several runs fit, the newest run with the same code is returned. If none has the same code, the
    newest run is returned. A run with the same code and the same number of steps is skipped,
    because a user who repeats such a run under a new name wants a second run.
    """
    free: dict[str, JSON] = {"code": 0, "steps": 0}

    def fits(other: Mapping[str, JSON]) -> bool:
        steps = int(str(other["steps"])), int(str(settings["steps"]))
        same = {**other, **free} == {**settings, **free}
        return same and steps[0] <= steps[1] and other != settings

    def rank(run: RunRecord) -> tuple[bool, int]:
        return run["settings"].get("code") == settings.get("code"), run["created_ms"]

    same = [run for run in run_records(store) if fits(run["settings"])]
    return max(same, key=rank, default=None)
