"""Actors in processes play as agents in this process, at once, and survive kills by a journal."""

import asyncio
import os
import re
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

import psutil
import pytest

from agentfly_core.agents.program import ProgramAgent
from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.gateway.session import SpeakerPattern
from agentfly_core.recipes.hub import agents, demonstrations, program
from agentfly_core.recipes.hub.team import MEMBERS
from agentfly_core.records.trajectory import Ending, Problem, Trajectory
from agentfly_core.rollout.episode import Agent
from agentfly_core.testing import loss_mask, problems_of, rollout_spec
from agentfly_core.testing.episodes import episode_specs, play_all, scripted
from tests.support.waiting import until

pytestmark = pytest.mark.slow
MODULES = ("agentfly_core.recipes.hub.actors", "agentfly_core.recipes.hub.team")


def problems(size: int) -> list[Problem]:
    path = "agentfly_core.recipes.hub.dataset:hidden_numbers"
    return problems_of(path, seed=41, train=size, validation=1, test=1)["train"]


def by_program(script: str | Path, *names: str, arguments: tuple[str, ...] = ()) -> ProgramAgent:
    speakers = {name: SpeakerPattern(path=name) for name in names}
    command = (sys.executable, str(script), *arguments)
    return ProgramAgent(command, speakers, facts=("digits", "first"), preload=MODULES)


async def counted(
    agent: Agent, policy: Any, *drawn: Problem
) -> tuple[list[Trajectory], dict[str, float]]:
    """The trajectories with turns, and the counts of remedies."""
    spec = rollout_spec(agent=agent, max_tokens=100, max_model_len=2000)
    trajectories, _, metrics = await play_all(episode_specs(*drawn), spec, scripted(policy))
    counts = {name: value for name, value in metrics.items() if name.startswith("hub/")}
    return [one for one in trajectories if one.turns], counts


async def played(agent: Agent, policy: Any, *drawn: Problem) -> list[Trajectory]:
    return (await counted(agent, policy, *drawn))[0]


def untidy(policy: Any) -> Any:
    """Replies of which some need a rule, and some a question."""

    async def replies(conversation: Conversation) -> str:
        reply = str(await policy(conversation))
        kind = sum(map(ord, conversation.problem.id + conversation.speaker)) % 3
        first = conversation.messages[-1].content.startswith("problem:")
        return f"So: {reply}" if kind == 1 else "Well." if kind == 2 and first else reply

    return replies


def tokens(trajectories: list[Trajectory]) -> dict[tuple[str, str], Any]:
    return {
        (one.problem.id, one.speaker): (
            [(turn.given, turn.sampled, turn.context) for turn in one.turns],
            loss_mask(one),
            one.ending,
        )
        for one in trajectories
    }


async def test_actors_play_as_agents_in_this_process():
    drawn = problems(6)
    policy = untidy(demonstrations.team(drawn, 0, spoilt=0.5))
    here, counts = await counted(agents.team, policy, *drawn)
    there, same = await counted(by_program(program.__file__, *MEMBERS), policy, *drawn)
    assert tokens(here) == tokens(there)
    assert counts == same
    assert counts.keys() == {"hub/rule_fix", "hub/ask_model"}
    assert [one.answer for one in here] == [one.answer for one in there]
    assert {one.speaker for one in here} == {*MEMBERS}
    assert all("x" in loss_mask(one) for one in here)


KILLED = ("north", "east", "chair")
MORTAL = """
    import json, os, sys
    from pathlib import Path
    from agentfly_core.recipes.hub import actors, program

    folder = Path(sys.argv[1])

    def dies(moment):
        mark = folder / f"{moment}-{name}"
        if mark.exists():
            mark.unlink()
            os.kill(os.getpid(), 9)

    def begun(own, *arguments):
        global name
        name = own
        with (folder / f"{name}.pid").open("a") as pids:
            print(os.getpid(), file=pids)
        return member(own, *arguments)

    def send(link, value):
        moment = "reply" if "reply" in value else "result"
        dies(f"before-{moment}")
        sent(link, value)
        dies(f"after-{moment}")

    def request(url, number, messages):
        with (folder / "requests").open("a") as numbers:
            print(number, file=numbers)
        return completion(url, number, messages)

    member, sent, completion = program.member, actors._send, actors._completion
    program.member, actors._send, actors._completion = begun, send, request
    problem = json.loads(sys.stdin.readline())
    url = os.environ["OPENAI_BASE_URL"]
    program.asyncio.run(program.play(problem, url))
"""
MOMENTS = ("before-reply", "after-reply", "before-result", "after-result", "amid-call")


@dataclass
class Killing:
    """A policy that kills the speaking actor amid its call, where a file asks for it."""

    policy: Any
    folder: Path

    async def __call__(self, conversation: Conversation) -> str:
        name = conversation.speaker
        with suppress(FileNotFoundError):
            (self.folder / f"amid-call-{name}").unlink()
            os.kill(int((self.folder / f"{name}.pid").read_text().split()[-1]), signal.SIGKILL)
        return str(await self.policy(conversation))


def pids_of(folder: Path) -> list[int]:
    return [int(pid) for path in folder.glob("*.pid") for pid in path.read_text().split()]


def alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


async def test_killed_actors_lose_and_double_nothing(tmp_path: Path) -> None:
    """15 kills: of three actors, each at five moments."""
    drawn = problems(1)
    policy = untidy(demonstrations.team(drawn, 0, spoilt=0.0))
    script = tmp_path / "mortal.py"
    script.write_text(dedent(MORTAL))
    marks = [tmp_path / f"{moment}-{name}" for moment in MOMENTS for name in KILLED]
    for mark in marks:
        mark.touch()
    agent = by_program(script, *MEMBERS, arguments=(str(tmp_path),))
    killed, counts = await counted(agent, Killing(policy, tmp_path), *drawn)
    assert not [mark for mark in marks if mark.exists()]
    alone, same = await counted(agents.team, policy, *drawn)
    assert (tokens(killed), counts) == (tokens(alone), same)
    numbers = (tmp_path / "requests").read_text().split()
    unanswered = [mark for mark in marks if mark.name.startswith(("before-reply", "amid-call"))]
    assert len(numbers) == len({*numbers}) + len(unanswered)  # others are in the journal
    pids = pids_of(tmp_path)
    assert len(pids) == len(MEMBERS) + len(marks)
    until(lambda: not any(map(alive, pids)))


EIGHT = tuple(f"actor{number}" for number in range(8))
AT_ONCE = """
    import asyncio, json, os, sys
    from functools import partial
    from agentfly_core.recipes.hub.actors import Actor
    from agentfly_core.recipes.hub.participants import Participant
    from agentfly_core.recipes.hub.model_agents import ModelAgent
    from agentfly_core.recipes.hub.team import FORM

    def agent(faults, model):
        return ModelAgent("Speak.", model, FORM, faults)

    async def main():
        url = os.environ["OPENAI_BASE_URL"]
        cast = [Participant(name, Actor(name, agent, url)) for name in sys.argv[1:]]
        replies = [one() for one in cast]
        print(json.dumps({"answer": " ".join([(await one).content for one in replies])}))

    asyncio.run(main())
"""


async def test_eight_actors_are_in_their_calls_at_once(tmp_path: Path) -> None:
    barrier = asyncio.Barrier(len(EIGHT))

    async def meets(conversation: Conversation) -> str:
        await barrier.wait()
        return f'{{"say": "{conversation.speaker}"}}'

    script = tmp_path / "at_once.py"
    script.write_text(dedent(AT_ONCE))
    trajectories = await played(by_program(script, *EIGHT, arguments=EIGHT), meets, *problems(1))
    (answered,) = [one for one in trajectories if one.answered is not None]
    assert (answered.ending, answered.answer) == (Ending.NO_TOOL_CALLS, " ".join(EIGHT))


DYING = """
    import os
    from agentfly_core.recipes.hub import actors, program

    def dies(*_):
        os.kill(os.getpid(), 9)

    program.member = dies
    problem = {"prompt": "", "digits": "4731", "first": "north"}
    program.asyncio.run(program.play(problem, "http://127.0.0.1"))
"""


async def test_an_actor_that_always_dies_is_a_fault(tmp_path: Path) -> None:
    script = tmp_path / "dying.py"
    script.write_text(dedent(DYING))
    command = (sys.executable, str(script))
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    _, errors = await process.communicate()
    assert process.returncode == 1
    assert re.search(rb"ActorFault: the actor \w+ died 6 times during one request", errors)


FAILING = """
    import asyncio, os, sys
    from pathlib import Path
    from agentfly_core.recipes.hub import actors
    from agentfly_core.recipes.hub.faults import AccessFault

    mark, requests = Path(sys.argv[1], "mark"), Path(sys.argv[1], "requests")

    def completion(url, number, messages):
        begun = requests.exists()
        with requests.open("a") as numbers:
            print(number, file=numbers)
        if not begun:
            return {"fault": "full", "refused": False}
        return {"content": number, "cut": False}

    class Agent:
        def __init__(self, faults, model):
            self.model, self.failed = model, 0

        async def reply(self):
            try:
                reply = await self.model([])
            except AccessFault:
                self.failed += 1
                raise
            if mark.exists():
                mark.unlink()
                os.kill(os.getpid(), 9)
            return f"{self.failed} {reply.content}"

    async def main():
        actor = actors.Actor("a", Agent, "")
        try:
            await actor.reply()
        except actors.ActorFault as fault:
            print(fault)
        for _ in range(3):
            mark.touch()
            print(await actor.reply())

    actors._completion = completion
    asyncio.run(main())
"""


async def test_a_failed_call_is_repeated_from_the_journal(tmp_path: Path) -> None:
    """Kills after the failed request repeat the fault, and replies stay at their requests."""
    script = tmp_path / "failing.py"
    script.write_text(dedent(FAILING))
    command = (sys.executable, str(script), str(tmp_path))
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    printed, _ = await process.communicate()
    assert printed.decode().splitlines() == [
        "AccessFault: full",
        *(f"1 a/{n}/0" for n in (1, 2, 3)),
    ]
    assert (tmp_path / "requests").read_text().split() == [f"a/{n}/0" for n in range(4)]
