"""What every stage's task shares: how a reused output shows, and when a task is worth another try."""

from __future__ import annotations

from typing import Any

from prefect.client.schemas.objects import State
from prefect.states import Completed

from agentfly_core.learner import LearnerLost
from agentfly_core.sampler import SamplerLost
from agentfly_core.store import Artifact


def reused(artifact: Artifact) -> State[Artifact]:
    """The state of a task that found its output whole on disk."""
    return Completed(name="Reused", message=f"{artifact.uri} was there already.", data=artifact)


async def service_lost(task: Any, run: Any, state: State[Any]) -> bool:
    """Whether a task failed because its warm service died; the supervisor starts that again."""
    error = await state.aresult(raise_on_failure=False)
    return isinstance(error, SamplerLost | LearnerLost)
