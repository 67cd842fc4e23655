"""Tools and rewards in processes of their own."""

import asyncio
import json
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from pydantic import TypeAdapter

from agentfly_core.authoring import process_calls, process_worker
from agentfly_core.authoring.environment import ServiceFailure
from agentfly_core.authoring.reward import Reward, reward
from agentfly_core.authoring.scoring import score
from agentfly_core.authoring.tool import Tool, tool
from agentfly_core.records.trajectory import (
    Observation,
    Problem,
    Score,
    ToolCall,
    Trajectory,
    Unscored,
)
from agentfly_core.system import guarded
from agentfly_core.testing.episodes import play
from tests.support import process_parts
from tests.support.project import ROOT
from tests.support.waiting import LIMIT

pytestmark = pytest.mark.slow

ADD = Problem("add", "1+1?", {"answer": "2"})


async def ask(asked: Tool, **arguments: Any) -> Observation:
    return await asked.answer(ToolCall(asked.name, arguments), {Problem: ADD})


async def test_a_process_is_kept_and_gets_the_problem_with_each_call() -> None:
    first, second = [
        json.loads((await ask(process_parts.where, what=what)).content) for what in ("a", "b")
    ]
    assert first == {"pid": first["pid"], "what": "a", "answer": "2", "main": True}
    assert second == {**first, "what": "b"}
    assert first["pid"] != os.getpid()


async def test_a_process_whose_parent_hangs_ends_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pid = json.loads((await ask(process_parts.where, what="a")).content)["pid"]
    asked = psutil.Process(pid)
    parent = asked.parent()
    assert parent is not None
    parent.suspend()
    monkeypatch.setattr(guarded, "END_SECONDS", 0.01)
    (process,) = [one for one in process_calls._idle if one._guardian.pid == parent.pid]
    assert process.end() == "SIGKILL"
    asked.wait(LIMIT)
    assert not process.alive


def test_a_process_call_has_no_event_loop_to_wait_on() -> None:
    async def returns() -> str:
        return "99"

    assert process_worker._done(returns()) == "99"
    with pytest.raises(AssertionError, match="no event loop"):
        process_worker._done(asyncio.sleep(0))


async def test_a_process_that_died_while_nobody_asked_it_is_replaced() -> None:
    pid = json.loads((await ask(process_parts.where, what="a")).content)["pid"]
    parent = psutil.Process(pid).parent()
    assert parent is not None
    psutil.Process(pid).kill()
    parent.wait(LIMIT)
    assert json.loads((await ask(process_parts.where, what="b")).content)["pid"] != pid


async def test_what_the_process_cannot_import_is_a_lost_service() -> None:
    nowhere = process_calls.Named("tests.support.nowhere:part", {})
    with pytest.raises(ServiceFailure, match=r"tests\.support\.nowhere"):
        await process_calls.ask(nowhere, {}, LIMIT)


async def test_an_asynchronous_tool_finds_its_event_loop_again() -> None:
    assert [(await ask(process_parts.again, number=n)).content for n in (1, 2)] == ["2", "3"]


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("told", "No such product."),
        ("raises", "KeyError: 'x'"),
        ("exits", "RuntimeError: it called exit(3)"),
        ("leaves", "its process died of exit code 7"),
        ("crashes", "its process died of SIGSEGV"),
    ],
)
async def test_what_goes_wrong_there_is_told_to_the_model(how: str, told: str) -> None:
    assert await ask(process_parts.wrong, how=how) == Observation("wrong", told, error=True)
    assert not (await ask(process_parts.where, what="next")).error


async def test_a_process_call_reports_bad_arguments_and_lost_services() -> None:
    assert "there is no argument 'waht'" in (await ask(process_parts.where, waht="a")).content
    with pytest.raises(ServiceFailure, match=r"^the shop is closed$"):
        await ask(process_parts.wrong, how="service")


async def test_a_blocked_interpreter_is_killed_with_its_children(
    tmp_path: Path,
) -> None:
    found = await ask(process_parts.explode, text="a" * 50, pids=str(tmp_path / "pids"))
    assert found == Observation("explode", "no result within 2 s", error=True)
    pids = (tmp_path / "pids").read_text().split()
    assert [psutil.pid_exists(int(pid)) for pid in pids] == [False, False]


async def test_a_cancelled_call_is_killed_and_others_continue() -> None:
    exploding = asyncio.create_task(ask(process_parts.explode, text="a" * 50, pids="/dev/null"))
    others = [asyncio.create_task(ask(process_parts.again, number=n)) for n in range(20)]
    await asyncio.sleep(0)
    exploding.cancel()
    assert [(await other).content for other in others] == [str(n + 1) for n in range(20)]
    with pytest.raises(asyncio.CancelledError):
        await exploding


async def test_a_process_killed_just_after_its_answer_serves_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    call = process_calls._Asking(
        process_calls.Named("tests.support.process_parts:again", {}), "[]", 9
    )
    asking = process_calls._Process.ask
    used = []

    def cancelled(process: Any, question: str, seconds: float) -> Any:
        used.append(process)
        answer = asking(process, question, seconds)
        call.cancel()
        return answer

    monkeypatch.setattr(process_calls._Process, "alive", True)  # its death takes a moment
    monkeypatch.setattr(process_calls._Process, "know", lambda process, part: None)
    monkeypatch.setattr(process_calls._Process, "ask", cancelled)
    with pytest.raises(process_calls.Died, match="caller was cancelled"):
        call()
    assert used[0] not in process_calls._idle


async def test_a_call_cancelled_before_it_has_a_process_is_never_made(
    tmp_path: Path,
) -> None:
    def held(name: str) -> asyncio.Task[Observation]:
        os.mkfifo(tmp_path / name)
        begun = str(tmp_path / f"{name} begun")
        return asyncio.create_task(ask(process_parts.hold, begun=begun, fifo=str(tmp_path / name)))

    names = [f"at work {number}" for number in range(process_calls.AT_ONCE)]
    working = [held(name) for name in names]
    fifos = [await asyncio.to_thread((tmp_path / name).open, "w") for name in names]  # both read
    waiting = held("cancelled")
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    for fifo in fifos:
        with fifo:
            fifo.write("done")
    assert [(await one).content for one in working] == ["done"] * len(names)
    assert (await ask(process_parts.again, number=1)).content == "2"
    assert not (tmp_path / "cancelled begun").exists()


async def test_one_process_a_core_serves_any_number_of_calls() -> None:
    found = await asyncio.gather(*(ask(process_parts.where, what=str(n)) for n in range(50)))
    answers = [json.loads(one.content) for one in found]
    assert [answer["what"] for answer in answers] == [str(n) for n in range(50)]
    assert len({answer["pid"] for answer in answers}) <= process_calls.AT_ONCE


async def test_a_process_reward_gets_the_trajectory_and_returns_a_score() -> None:
    trajectory = await play(["<where what=a><nothing><where", "99"], process_parts.where)
    assert (
        TypeAdapter(Trajectory).validate_python(json.loads(json.dumps(asdict(trajectory))))
        == trajectory
    )
    found = await process_parts.length.score(trajectory, {})
    assert isinstance(found, Score)
    assert (found.value, found.per_turn) == (33.0, (30.0, 3.0))
    assert found.parts["pid"] != os.getpid()


async def test_a_process_reward_that_dies_leaves_a_trajectory_unscored() -> None:
    trajectory = await play(["99"])
    crash, none = (replace(trajectory, problem=Problem(name, "?")) for name in ("crash", "none"))
    scores = await score([crash, none, trajectory], {process_parts.length: 1.0})
    assert scores[0].reward == Unscored("length: its process died of SIGKILL")
    assert isinstance(scores[1].reward, Unscored)
    assert scores[1].reward.reason.startswith(
        "length: got None (NoneType), expected a finite number"
    )
    assert scores[2].reward == 3.0


def local() -> Tool:
    @tool(process=True)
    def inner() -> str:
        return "never"

    return inner


@pytest.mark.parametrize(
    ("part", "told"),
    [
        (process_parts.sees, "'sees' has process=True, but environments .Shelf."),
        (local(), "'inner' has process=True, .*the top level of a module"),
        (
            tool(process=True)(process_parts.explode.function),
            "'explode' has process=True, .*the top level of a module",
        ),
        (
            reward(process=True)(process_parts.length.function),
            "'length' .* to the top level of a module",
        ),
        (process_parts.endless, "'endless' .* timeout=inf. Set a finite timeout"),
    ],
)
def test_what_cannot_run_in_another_process_is_refused(part: Tool | Reward, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        _ = part.signature


def test_its_processes_die_with_ours() -> None:
    program = """
import asyncio, os, signal, sys
from agentfly_core.system import guarded
from agentfly_core.testing.episodes import play
from tests.support import process_parts
from agentfly_core.records.trajectory import Problem, ToolCall
lent = {Problem: Problem("p", "?", {"answer": "2"})}
answer = process_parts.where.answer(ToolCall("where", {"what": "a"}), lent)
print(asyncio.run(answer).content, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    pid = json.loads(done.stdout)["pid"]
    with suppress(psutil.NoSuchProcess):
        psutil.Process(pid).wait(LIMIT)
