"""Programs that use OpenAI's API as agents. Each episode runs a program, which asks the policy."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial

from agentfly_core.authoring.author_call import in_thread
from agentfly_core.gateway.connected import in_sandbox, isolates, outside
from agentfly_core.gateway.process import ProgramCommand, ProgramEnd, RunningProgram
from agentfly_core.gateway.server import served
from agentfly_core.gateway.session import GatewaySession, SpeakerPattern
from agentfly_core.records.trajectory import Ending, Problem
from agentfly_core.rollout.episode import Episode, RolloutSpec
from agentfly_core.rollout.rules import EpisodeOver, StartAgain
from agentfly_core.system.files import command_files, runs_python
from agentfly_core.system.formats.text import did_you_mean

SHARE = 0.95
"""Share of `agent.deadline` that a program gets, because an episode after the whole deadline is not
scored.
"""
PROGRAM = "program"
"""The main speaker of a program."""
ProgramFunction = Callable[[Problem, str], str]


class ProgramError(RuntimeError):
    """A program failed: `ProgramError("The program ended with exit code 1: KeyError: 'a'")`."""


class ProgramAgent:
    """Plays an episode with a program, such as `command: [python, my_agent.py]`.

    The program reads one line of JSON with `id`, `prompt` and the named `facts`. It sends requests
    to OPENAI_BASE_URL, where the policy answers. The last line of its output is the answer, as text
    or as `{"answer": ...}`. Such an object may also have `"counts": {"retry": 2}`, which become
    metrics of the rollout.

    - `speakers` selects the requests of other speakers. All other requests belong to the speaker
      `program`.
    - `train` names the trained speakers, by default all speakers outside of `agent.frozen`.
    - `files` belong to the program. With edited files, the experiment has another identity.
    - `environment` names environment variables that the program inherits.
    - `preload: [openai]` forks each program from an interpreter that has imported these modules.
      They must not start threads, and `command` must be `[python, script.py, ...]`.
    - `sandbox` runs a command `[python, ...]` in the sandbox, with `files`, the interpreter's
      virtual environment and the gateway.
    """

    def __init__(
        self,
        command: tuple[str, ...],
        speakers: Mapping[str, SpeakerPattern] = {},
        train: tuple[str, ...] = (),
        facts: tuple[str, ...] = (),
        files: tuple[str, ...] = (),
        environment: tuple[str, ...] = (),
        preload: tuple[str, ...] = (),
        sandbox: bool = False,
    ) -> None:
        self.command = ProgramCommand(command, environment, preload)
        _require_command(self.command, sandbox)
        _require_speakers(train, [PROGRAM, *speakers])
        self.speakers, self.facts = speakers, facts
        self.files, self.sandbox = [*files, *command_files(command)], sandbox
        self.__name__ = PROGRAM

    async def __call__(self, episode: Episode) -> Ending:
        session = GatewaySession(episode, self.speakers)
        async with await self._started(session) as program:
            end = await session.result(program.wait(), _seconds(episode))
        return _ending(session, end)

    async def _started(
        self, session: GatewaySession
    ) -> AbstractAsyncContextManager[RunningProgram]:
        line = self._line(session.episode.problem)
        if self.sandbox and await isolates():
            return in_sandbox(self.command, self.files, session, line)
        return outside(self.command, session, line)

    def _line(self, problem: Problem) -> str:
        facts = {name: problem.facts[name] for name in self.facts if name in problem.facts}
        return json.dumps({"id": problem.id, "prompt": problem.prompt, **facts})


class FunctionProgram:
    """Plays an episode with a plain function of the problem and the base URL of OpenAI's API."""

    def __init__(self, function: ProgramFunction) -> None:
        self.function, self.__name__ = function, function.__name__

    async def __call__(self, episode: Episode) -> Ending:
        session = GatewaySession(episode, {})
        async with served(session) as url:
            run, name = partial(self.function, episode.problem, url), f"The agent {self.__name__}"
            work = in_thread(run, math.inf, name)
            try:
                answer = await session.result(work, _seconds(episode))
            except Exception as error:  # of the author's function
                raise _at_limit(session, error) from error
        session.answer(answer)
        return Ending.NO_TOOL_CALLS


def _require_command(command: ProgramCommand, sandbox: bool) -> None:
    words, preload = [*command.words], [*command.preload]
    if not words:
        raise ValueError("program(command=[]): expected a program and its arguments.")
    if preload and not (runs_python(words) and "".join(words[1:2]).endswith(".py")):
        raise ValueError(
            f"program(preload={preload}): expected a command [python, script.py, ...], got {words}."
        )
    if sandbox and preload:
        raise ValueError(
            f"program(sandbox=True, preload={preload}): a program in the sandbox starts its own "
            "interpreter; remove `preload` or `sandbox`."
        )
    if sandbox and not runs_python(words):
        raise ValueError(f"program(sandbox=True): expected a command [python, ...], got {words}.")


def _require_speakers(train: Sequence[str], roles: Sequence[str]) -> None:
    if unknown := [role for role in train if role not in roles]:
        raise ValueError(
            f"program(train={[*train]}): there is no speaker {unknown[0]!r}, expected some of "
            f"{', '.join(roles)}.{did_you_mean(unknown[0], roles)}"
        )


def _seconds(episode: Episode) -> float:
    assert isinstance(episode.rules, RolloutSpec)
    return SHARE * episode.rules.deadline


def _at_limit(session: GatewaySession, error: Exception) -> Exception:
    """Return the error of a program, or EpisodeOver if a limit has refused the program a reply."""
    broken = session.broken.done()
    return EpisodeOver(session.limit) if session.limit and not broken else error


def _ending(session: GatewaySession, end: ProgramEnd) -> Ending:
    # a signal may come from outside, so the episode is played again
    if end.code < 0:
        raise StartAgain(f"The program {end.how}.")
    session.episode.counts.update(end.counts)
    if end.code:
        raise _at_limit(session, ProgramError(f"The program {end.how}."))
    if end.answer is None and session.last is None:
        raise ProgramError("The program ended without a request and without an answer.")
    if end.answer is not None:
        session.answer(end.answer)
    return Ending.NO_TOOL_CALLS
