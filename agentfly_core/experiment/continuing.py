"""Refuse to continue a run if its settings, its model files or the versions of stages changed."""

import logging
from collections.abc import Mapping

from agentfly_core.config.experiment import Settings
from agentfly_core.config.loading import differences
from agentfly_core.experiment import keys
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.experiment.run_layout import RunLayout
from agentfly_core.records.run_record import RunRecord
from agentfly_core.store.store import Store
from agentfly_core.system.revision import revision

logger = logging.getLogger(__name__)


def require_continuable(store: Store, record: RunRecord, steps: int) -> None:
    """Raise ValueError if a run cannot be continued to a total of `steps` steps.

    A run cannot be continued if the version of a stage changed since the run began, or if more than
    `steps` steps are already finished.
    """
    name = record["name"]
    refuse_other_stages(name, record)
    # only a warning: whether the results would differ is decided by the versions of the stages
    if record["revision"] != revision():
        logger.warning(
            "The run was started with the code of %s, and continues with the code of %s.",
            _in_words(record["revision"]),
            _in_words(revision()),
        )
    layout = RunLayout(name)
    beyond = [step for step in layout.steps(store) if step > steps]
    if done := [step for step in beyond if store.get(layout.step(step).policy)]:
        raise ValueError(
            f"The run {name!r} has finished {done[-1]} steps already, but steps is {steps}. Set "
            f"steps to {done[-1]} or more, or start another run with --new."
        )


def _in_words(code: Mapping[str, str | None]) -> str:
    """Describe a revision: "commit 4f0c... with uncommitted changes (digest 9f2c...)".

    Without uncommitted changes, the text has only the commit.
    """
    commit, dirty = code.get("commit"), code.get("dirty")
    changes = f" with uncommitted changes (digest {dirty})" if dirty else ""
    return f"commit {commit}{changes}" if commit else "an unknown commit"


def refuse_other_stages(name: str, record: RunRecord) -> None:
    """Raise ValueError if the version of a stage changed since the run began."""
    if record["stages"] != keys.VERSIONS:
        raise ValueError(
            f"The run {name!r} was started with the stage versions {record['stages']}, but this "
            f"version of AgentFly has {dict(keys.VERSIONS)}. Continue the run with the code of "
            f"{_in_words(record['revision'])}, or start another run with --new."
        )


def refuse_other_settings(record: RunRecord, settings: Settings) -> None:
    """Raise ValueError if settings or model files changed since the run began.

    The message lists the changed settings. Settings that are marked as RESUMABLE may change.
    `steps` is RESUMABLE, but must not change if the learning rate depends on `steps`.
    """
    name, before = record["name"], record.get("model_digest")
    now = StageKeys(settings).model_digest()
    # `now` is empty if the folder was removed; a run that has begun no longer needs the folder
    if before and now and before != now:
        raise ValueError(
            f"model: the run {name!r} was started with other files in {settings.model} "
            f"(digest {before[:12]}, now {now[:12]}). Restore the files, or start "
            "another run with --run NAME or --new."
        )
    changes = differences(record["settings"], settings.model_dump(mode="json"))
    planned = record.get("planned_steps")
    if settings.update.decays and any(c.key == "steps" and c.new != planned for c in changes):
        raise ValueError(
            f"steps is {settings.steps}, but the run {name!r} was started with steps="
            f"{planned or record['settings']['steps']}. The learning rate schedule "
            f"({settings.update.lr_scheduler_type}) depends on the number of steps. To train "
            f"longer, fork the run from one of its steps: `agentfly fork {name}@STEP "
            f"steps={settings.steps}`."
        )
    if fixed := [change for change in changes if not change.resumable]:
        lines = "\n".join(f"  {change}" for change in fixed)
        raise ValueError(
            f"The run {name!r} was started with other settings:\n{lines}\nRestore these settings, "
            "or start another run with --run NAME."
        )
