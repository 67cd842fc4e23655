"""What makes a function a stage: a Prefect task whose output the store, and nobody else, finds
again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeAlias, TypeVar

from prefect import Task, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.states import Completed
from prefect.utilities.annotations import quote

from agentfly_core.inference.sampler import SamplerLost
from agentfly_core.store.store import Artifact
from agentfly_core.system.formats.text import keeping_secrets
from agentfly_core.training.job import LearnerLost

Made: TypeAlias = Artifact | State[Artifact]
P = ParamSpec("P")
R = TypeVar("R")


def stage(name: str, retries: int = 0) -> Callable[[Callable[P, R | State[R]]], Callable[P, R]]:
    """Make a function a task called `name`, a pattern over its parameters; it may return a value or
    a state with one.

    `retries` are for a warm service that died under it: the supervisor starts that again.
    """

    def decorate(function: Callable[P, R | State[R]]) -> Callable[P, R]:
        made: Any = task(
            task_run_name=name,
            cache_policy=NO_CACHE,
            retries=retries,
            retry_condition_fn=_service_lost,
        )(keeping_secrets()(function))

        @functools.wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            quoted = [quote(value) for value in args]
            named = {key: quote(value) for key, value in kwargs.items()}
            result: R | State[R] = made(*quoted, **named)
            # asked for all results, Prefect's states would take 5 ms each
            return result.result() if isinstance(result, State) else result

        return run

    return decorate


def reused(artifact: Artifact) -> State[Artifact]:
    """The state of a stage that found its output whole in the store."""
    return Completed(name="Reused", message=f"{artifact.uri} was there already.", data=artifact)


async def _service_lost(_: Task[..., R], __: TaskRun, state: State[R]) -> bool:
    return isinstance(await state.aresult(raise_on_failure=False), SamplerLost | LearnerLost)
