"""Programs that use OpenAI's API as agents.

Each episode runs a program. The policy replies to the program's requests.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial

from agentfly_core.authoring.time_limits import in_thread
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
"""The fraction of the time `agent.deadline` that a program may use. An episode that exceeds the
deadline is not scored.
"""
PROGRAM = "program"
"""The name of the main speaker.

All requests that belong to no speaker in `ProgramAgent.speakers` belong to the main speaker.
"""
ProgramFunction = Callable[[Problem, str], str]


class ProgramError(RuntimeError):
    """A program failed: `ProgramError("The program ended with exit code 1: KeyError: 'a'")`."""


class ProgramAgent:
    """Plays an episode with a program, for example `command: [python, my_agent.py]`.

    The program reads one line of JSON with the problem's `id` and `prompt`. It sends requests to
    OPENAI_BASE_URL, and the policy replies. The last line of the program's output is the answer,
    either text or a JSON object such as `{"answer": "99", "counts": {"retry": 2}}`. The counts
    become metrics of the rollout.

    - `speakers` divides the requests among several speakers. With `{"critic": {"model":
      "critic-*"}}`, a request for a model with a name such as "critic-1" belongs to the speaker
      `critic`. All other requests belong to the speaker `program`.
    - `train` lists the trained speakers. The default is all speakers that are not in
      `agent.frozen`.
    - `facts` lists names of facts (entries of `Problem.facts`) that are added to the line of JSON.
    - `files` are the files of the program. After an edit of these files, training starts a new run.
    - `environment` lists the names of environment variables that the program inherits.
    - `preload` lists modules, for example `[openai]`. Each program is then forked from an
      interpreter that has imported these modules. The modules must not start threads, and `command`
      must be `[python, script.py, ...]`.
    - `sandbox` runs the program in the sandbox. `command` must then be `[python, ...]`. In the
      sandbox, the program has access to `files`, the interpreter's virtual environment and
      OPENAI_BASE_URL.
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
    """Plays an episode with a plain function.

    The function gets the problem and a base URL for a client of OpenAI's API. The policy replies to
    the client's requests. The function returns the answer.
    """

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
                if (end := _at_limit(session, error)) is error:
                    raise
                raise end from error
        session.answer(answer)
        return Ending.NO_TOOL_CALLS


def _require_command(command: ProgramCommand, sandbox: bool) -> None:
    words, preload = [*command.words], [*command.preload]
    if not words:
        raise ValueError(
            "program(command=[]): the command is empty, expected a program and its arguments."
        )
    if preload and not (runs_python(words) and "".join(words[1:2]).endswith(".py")):
        raise ValueError(
            f"program(preload={preload}): preload needs a command such as [python, script.py, "
            f"...], got {words}."
        )
    if sandbox and preload:
        raise ValueError(
            f"program(sandbox=True, preload={preload}): a program in the sandbox starts its own "
            "interpreter; remove `preload` or `sandbox`."
        )
    if sandbox and not runs_python(words):
        raise ValueError(f"program(sandbox=True): the command must begin with python, got {words}.")


def _require_speakers(train: Sequence[str], roles: Sequence[str]) -> None:
    if unknown := [role for role in train if role not in roles]:
        raise ValueError(
            f"program(train={[*train]}): the agent has no speaker {unknown[0]!r}. Expected names "
            f"from {', '.join(roles)}.{did_you_mean(unknown[0], roles)}"
        )


def _seconds(episode: Episode) -> float:
    assert isinstance(episode.rules, RolloutSpec)
    return SHARE * episode.rules.deadline


def _at_limit(session: GatewaySession, error: Exception) -> Exception:
    """Return EpisodeOver if a limit, such as `max_model_len`, cut a reply or refused a request.

    Without such a limit, or if another error (`session.broken`) ended the episode, return `error`.
    """
    broken = session.broken.done()
    return EpisodeOver(session.limit) if session.limit and not broken else error


def _ending(session: GatewaySession, end: ProgramEnd) -> Ending:
    # the signal may have another cause than the program, so the episode is played again
    if end.code < 0:
        raise StartAgain(f"The program {end.how}.")
    session.episode.counts.update(end.counts)
    if end.code:
        raise _at_limit(session, ProgramError(f"The program {end.how}."))
    if end.answer is None and session.last is None:
        raise ProgramError(
            "The program ended without a request to the model and without an answer."
        )
    if end.answer is not None:
        session.answer(end.answer)
    return Ending.NO_TOOL_CALLS
