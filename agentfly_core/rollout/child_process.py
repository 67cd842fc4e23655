"""A child process of an environment. The process answers lines of JSON with lines of JSON."""

import asyncio
import functools
import json
import logging
import os
import shutil
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from agentfly_core.authoring.environment import ServiceFailure
from agentfly_core.system.files import write_json
from agentfly_core.system.formats import strict_json
from agentfly_core.system.formats.json_value import JSON
from agentfly_core.system.formats.text import clip
from agentfly_core.system.process import Owner
from agentfly_core.system.service import (
    end_users,
    orphans_killed,
    owned_environment,
    private_folder,
)

LONGEST_LINE = 16 * 1024 * 1024
LOG = "stderr.log"
LOG_TAIL = 500
_log = logging.getLogger(__name__)


class Child:
    """A child process that an environment starts and uses.

    The program must answer each line of JSON on stdin with one line of JSON on stdout.

        class Chess(Environment):
            def __init__(self) -> None:
                self.engine = Child("my-engine", "--json")

            async def start(self) -> None:
                await self.engine.start()

            async def reset(self, problem: Problem) -> None:
                await self.engine.ask({"reset": problem.facts["board"]}, seconds=5)

            async def healthy(self) -> bool:
                return self.engine.alive

            async def close(self) -> None:
                await self.engine.end()

    The child gets the variables in `env` in addition to the inherited environment variables.
    `folder` is the child's private TMPDIR and also contains its stderr. The folder exists from
    `start` to `end`. If the Python process dies, the child's stdin is closed. The child should then
    exit. A child that keeps running is killed by the next process that starts environments.
    """

    def __init__(self, *command: str, env: Mapping[str, str] | None = None) -> None:
        self.folder = Path()
        self._command, self._env = command, env or {}
        self._process: Process | None = None
        self._turn = asyncio.Lock()

    async def start(self) -> None:
        """Start the program as the leader of a new Unix session.

        Raises OSError if the program does not exist.
        """
        assert self._process is None, "a child is started once"
        self.folder = await asyncio.to_thread(private_folder)
        owner = Owner.current().to_json()
        await asyncio.to_thread(write_json, self.folder / "child.owner", owner)
        own = {**self._env, "TMPDIR": str(self.folder)}
        env = owned_environment(("PYTHONPATH", "JAVA_HOME"), own)
        with (self.folder / LOG).open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                env=env,
                stdin=PIPE,
                stdout=PIPE,
                stderr=log,
                limit=LONGEST_LINE,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The child's process id, or 0 before the start."""
        return self._process.pid if self._process else 0

    @property
    def alive(self) -> bool:
        """Whether the child process is running."""
        return self._process is not None and self._process.returncode is None

    async def ask(self, question: JSON, seconds: float) -> Any:  # of any JSON type
        """Send a JSON value and return the answer. Concurrent calls are processed in sequence.

        Raises ServiceFailure if the process is dead, does not answer within `seconds`, or answers
        with invalid JSON. After such an error or a cancellation, the process is killed, so that
        the next request cannot read a late answer.
        """
        # NaN is not allowed, because strict JSON parsers reject it
        line = json.dumps(question, allow_nan=False).encode() + b"\n"
        async with self._turn:
            try:
                async with asyncio.timeout(seconds) as limit:
                    return strict_json.parse((await self._line(line)).decode(), LONGEST_LINE)
            except BaseException as error:  # also after a cancellation, see above
                self._kill()
                if isinstance(error, TimeoutError) and limit.expired():
                    raise ServiceFailure(
                        self._fault(f"gave no answer within {seconds:g} s")
                    ) from None
                if isinstance(error, ValueError):
                    raise ServiceFailure(
                        self._fault(f"gave an answer that is not valid JSON: {error}")
                    ) from error
                raise

    async def end(self) -> None:
        """Kill the program and all its descendants, and remove its folder."""
        self._kill()
        if self.folder == Path():
            return
        await asyncio.to_thread(end_users, self.folder)
        if self._process:
            await self._process.wait()
        await asyncio.to_thread(shutil.rmtree, self.folder, ignore_errors=True)

    async def _line(self, line: bytes) -> bytes:
        if not self._process or not self._process.stdin or not self._process.stdout:
            raise ServiceFailure(self._fault("was not started"))
        try:
            self._process.stdin.write(line)
            await self._process.stdin.drain()
            answer = await self._process.stdout.readline()
        except ConnectionError:
            answer = b""
        if not answer.endswith(b"\n"):
            raise ServiceFailure(self._fault("died"))
        return answer

    def _kill(self) -> None:
        if self.alive:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def _fault(self, what: str) -> str:
        log = self.folder / LOG
        tail = clip(log.read_bytes()[-LOG_TAIL:], LOG_TAIL) if log.exists() else ""
        return f"the process {self.pid} of {self._command[0]} {what}" + (
            f"; the end of its stderr: {tail}" if tail else ""
        )


@functools.cache
def sweep() -> None:
    """Kill each child process that still runs although its Python process is dead.

    Only the first call in a process has an effect.
    """
    if ended := orphans_killed(None):
        _log.warning(
            "Environments of a killed run had left processes running. They were ended (process "
            "ids: %s).",
            [*ended],
        )
