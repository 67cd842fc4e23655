"""All stages as Prefect tasks; the store, not Prefect, caches their outputs."""

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from prefect import Task, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.states import Completed
from prefect.utilities.annotations import quote

from agentfly_core.pipeline.loop.stages import SERVICE_LOST, Stages
from agentfly_core.pipeline.produce import Reused

P = ParamSpec("P")
R = TypeVar("R")


def stage(name: str, function: Callable[P, R], retries: int = 0) -> Callable[P, R]:
    """Make a Prefect task of a stage function. `name` is a pattern with the function's parameters.

    A stage is retried up to `retries` times if a service died, because the supervisor restarts the
    service.
    """
    made: Any = task(
        task_run_name=name, cache_policy=NO_CACHE, retries=retries, retry_condition_fn=_service_lost
    )(_stateful(function))

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        quoted = [quote(value) for value in args]
        named = {key: quote(value) for key, value in kwargs.items()}
        result: R | State[R] = made(*quoted, **named)
        # only Reused comes as a State: a State for each result would take 5 ms
        return result.result() if isinstance(result, State) else result

    return run


def _stateful(function: Callable[P, R]) -> Callable[P, R | State[R]]:
    """Wrap a function to return the state Reused for an artifact from the store."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R | State[R]:
        result = function(*args, **kwargs)
        if isinstance(result, Reused):
            message = f"{result.uri} was already in the store."
            return Completed(name="Reused", message=message, data=result)
        return result

    return run


async def _service_lost(_: Task[..., R], __: TaskRun, state: State[R]) -> bool:
    return isinstance(await state.aresult(raise_on_failure=False), SERVICE_LOST)


TASKS = Stages(stage)
