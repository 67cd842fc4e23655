"""Whether a night's output will fit on the disk, before any of it is made."""

from __future__ import annotations

from agentfly_core.pipeline import retention
from agentfly_core.runs.context import ExperimentContext
from flows.nights.events import tell


def require_space_for_night(context: ExperimentContext, night: str) -> None:
    """Raise NoSpace, and tell `no_space`, unless the disk can hold what a night has still to write.

    `context` is the night's own: it starts from the policy whose size counts.
    """
    try:
        retention.require_space_for_night(context, night)
    except retention.NoSpace as error:
        tell("no_space", night, context.experiment, str(error))
        raise
