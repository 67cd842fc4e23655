"""A Python interpreter keeps its state within one episode."""

from collections.abc import AsyncIterator

import pytest

from agentfly_core.authoring.environment import ServiceFailure
from agentfly_core.environments.interpreter import Interpreter
from agentfly_core.records.trajectory import Observation, Problem, ToolCall
from agentfly_core.rollout.pool import Limit
from agentfly_core.rollout.resources import ResourceManager
from agentfly_core.sandbox.running import run
from agentfly_core.tools.python import LOST, python_session
from tests.support.rooms import lease
from tests.support.sandbox_processes import IDLE, children, processes, until
from tests.support.signals import called
from tests.support.waiting import LIMIT

pytestmark = pytest.mark.usefixtures("sandbox")
PROBLEM = Problem("fibonacci", "What is the tenth Fibonacci number?")


@pytest.fixture
async def interpreter() -> AsyncIterator[Interpreter]:
    made = Interpreter()
    await called(made.reset, PROBLEM)
    yield made
    await called(made.close)


async def ask(code: str, interpreter: Interpreter) -> Observation:
    return await python_session.answer(
        ToolCall("python", {"code": code}), {Interpreter: interpreter}
    )


async def test_a_later_call_sees_earlier_definitions(interpreter: Interpreter) -> None:
    define = "def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)"
    assert await ask(define, interpreter) == Observation("python", "The program printed nothing.")
    assert await ask("print(fib(10))", interpreter) == Observation("python", "55")


async def test_an_error_is_reported_and_keeps_the_state(interpreter: Interpreter) -> None:
    observation = await ask("x = 3\nprint(x / 0)", interpreter)
    assert observation.error
    assert observation.content.startswith(
        'Traceback (most recent call last):\n  File "<call 1>", line 2, in <module>'
    )
    assert observation.content.endswith("ZeroDivisionError: division by zero")
    assert await ask("print(x)", interpreter) == Observation("python", "3")


async def test_a_lost_state_is_reported_to_the_model(interpreter: Interpreter) -> None:
    await ask("x = 3", interpreter)
    too_much = await ask("while True: print('x' * 1000)", interpreter)
    assert too_much.error
    assert too_much.content.endswith(f"Stopped: it printed more than 1 MB.\n{LOST}")
    assert (await ask("print(x)", interpreter)).content.endswith(
        "NameError: name 'x' is not defined"
    )
    assert await ask("import os; os._exit(0)", interpreter) == Observation("python", LOST)


async def test_episodes_are_isolated() -> None:
    leave = (
        "secret = 1\nfor folder in ('.', '/tmp', '/dev/shm'): open(folder + '/secret', 'w').close()"
    )
    find = "import os; print('secret' in dir(), *map(os.listdir, ('.', '/tmp', '/dev/shm')))"
    async with ResourceManager({Interpreter: Limit(1, max_uses=100)}) as resources:
        for code, printed in (
            (leave, "The program printed nothing."),
            (find, "False [] [] []"),
        ) * 2:
            async with lease(resources, Interpreter, PROBLEM, timeout=LIMIT) as lent:
                assert await ask(code, lent) == Observation("python", printed)
        assert resources.metrics()["resources/Interpreter/started"] == 4


async def test_a_lost_episode_leaves_no_process() -> None:
    await run("pass")
    await until(lambda: children() == IDLE)
    async with ResourceManager({Interpreter: 2}) as resources:
        with pytest.raises(ServiceFailure, match="did not end within"):
            async with lease(resources, Interpreter, PROBLEM, timeout=LIMIT, deadline=0.2) as lent:
                await ask("import os, threading\nos.fork()\nthreading.Event().wait()", lent)
    await until(lambda: children() == IDLE)


@pytest.mark.slow
async def test_the_model_never_reads_a_failure_of_the_sandbox(
    interpreter: Interpreter,
) -> None:
    await ask("x = 3", interpreter)
    server, *below = processes()
    server.kill()
    await until(lambda: not any(process.is_running() for process in below))
    with pytest.raises(ServiceFailure, match="The sandbox failed"):
        await ask("print(x)", interpreter)


def test_the_model_sees_a_tool_named_python() -> None:
    schema = python_session.schema
    assert (schema.name, list(schema.parameters["properties"])) == ("python", ["code"])
    assert "what earlier calls defined" in schema.description
