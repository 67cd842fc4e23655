"""The program of the child processes that run tools and rewards with `process=True`.

It reads requests and writes answers as lines of JSON; see `process_calls`.
"""

import asyncio
import functools
import json
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from agentfly_core.authoring.author_part import awaited, is_awaitable
from agentfly_core.authoring.environment import Environment, ServiceFailure
from agentfly_core.authoring.process_calls import Answer
from agentfly_core.authoring.time_limits import harmless
from agentfly_core.config.import_path import load
from agentfly_core.system.formats.text import words_of

R = TypeVar("R")


def main(descriptor: int) -> None:
    """Answer requests on the socket with this file descriptor until the socket is closed."""
    line = socket.socket(fileno=descriptor)
    # otherwise programs that a tool starts would keep the socket open
    line.set_inheritable(False)

    async def call(function: Callable[[], Awaitable[R] | R], lent: Sequence[Environment]) -> R:
        # Plain functions run in the main thread, where libraries may use signals, and outside of an
        # event loop. Coroutines share one loop, because modules keep async clients that are bound
        # to a loop.
        try:
            result = function()
            return runner.run(awaited(result)) if is_awaitable(result) else result
        except BaseException as error:  # the function may raise any exception
            raise harmless(error) from None

    @functools.cache
    def part(text: str) -> Any:
        setup = json.loads(text)
        loaded, settings = load(setup["use"]), setup["settings"]
        loaded = loaded.with_settings(**settings) if settings else loaded
        _ = loaded.function  # creates the object before the time limit of a call starts
        return loaded

    with asyncio.Runner() as runner, line.makefile("rb") as questions:
        for question in map(json.loads, questions):
            answer: Answer = {}
            try:
                if "know" in question:
                    sys.path[:] = question["from"]
                    part(json.dumps(question["know"]))
                else:
                    target = part(json.dumps(question["ask"]))
                    answer["answer"] = _done(target.answer_apart(question["question"], call))
            except (ServiceFailure, ValueError) as error:
                answer["lost"] = words_of(error)
            line.sendall(json.dumps(answer).encode() + b"\n")


def _done(work: Coroutine[None, None, R]) -> R:
    """Return the result of a coroutine that runs to its end without suspending."""
    try:
        work.send(None)
    except StopIteration as done:
        result: R = done.value
        return result
    raise AssertionError("a call with process=True must not wait: it has no event loop")


if __name__ == "__main__":
    main(int(sys.argv[1]))
