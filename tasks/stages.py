"""All stages as Prefect tasks. Their outputs are cached by AgentFly's store, not by Prefect."""

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from prefect import Task, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.states import Completed
from prefect.utilities.annotations import quote

from agentfly_core.pipeline.loop.stages import Stages
from agentfly_core.pipeline.produce import Reused
from agentfly_core.system.service import ServiceLost

P = ParamSpec("P")
R = TypeVar("R")


def stage(name: str, function: Callable[P, R], retries: int = 0) -> Callable[P, R]:
    """Make a Prefect task of a stage function. The result has the signature of the function.

    `name` is a pattern for the name of a task run, with the function's parameters in braces. If a
    service (such as vLLM) dies during the stage, the stage is repeated at most `retries` times,
    because the supervisor restarts the service.
    """
    made: Any = task(
        task_run_name=name, cache_policy=NO_CACHE, retries=retries, retry_condition_fn=_service_lost
    )(_stateful(function))

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        quoted = [quote(value) for value in args]
        named = {key: quote(value) for key, value in kwargs.items()}
        result: R | State[R] = made(*quoted, **named)
        # only the result Reused is a Prefect State, because making a State takes 5 ms
        return result.result() if isinstance(result, State) else result

    return run


def _stateful(function: Callable[P, R]) -> Callable[P, R | State[R]]:
    """Wrap a stage function.

    If the function returns an artifact that was already in the store, the wrapper returns a Prefect
    State with the name Reused.
    """

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R | State[R]:
        result = function(*args, **kwargs)
        if isinstance(result, Reused):
            message = f"{result.uri} was already in the store."
            return Completed(name="Reused", message=message, data=result)
        return result

    return run


async def _service_lost(_: Task[..., R], __: TaskRun, state: State[R]) -> bool:
    return isinstance(await state.aresult(raise_on_failure=False), ServiceLost)


TASKS = Stages(stage)
