"""A child process of an environment answers lines of JSON, and always ends with its owner."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from agentfly_core.authoring.environment import ServiceFailure
from agentfly_core.rollout import child_process
from agentfly_core.rollout.child_process import Child
from agentfly_core.system.service import private_folder
from agentfly_core.system.supervisor import die_with_parent
from tests.support.clocks import set_clock
from tests.support.waiting import LIMIT, until

# Answers requests for its environment, the process id of a grandchild in a session of its
# own, nothing, ...
PROGRAM = """
import json, os, signal, sys, time
def grandchild():
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(writing, str(os.getpid()).encode())
            signal.pause()
        os._exit(0)
    return int(os.read(reading, 20))
for line in sys.stdin:
    match json.loads(line):
        case "environment": answer = dict(os.environ)
        case "grandchild": answer = grandchild()
        case "nothing": signal.pause()
        case "nonsense": print("?", flush=True); continue
        case "die": sys.exit("out of memory")
        case other: answer = other
    print(json.dumps(answer), flush=True)
"""

# Starts a child with a grandchild, prints their ids, and waits to be killed.
OWNER = """
import asyncio, signal, sys
from agentfly_core.rollout.child_process import Child
async def main():
    one = Child(sys.executable, "-c", sys.argv[1])
    await one.start()
    print(one.pid, await one.ask("grandchild", 3600), one.folder, flush=True)
    signal.pause()
asyncio.run(main())
"""


@asynccontextmanager
async def running(**env: str) -> AsyncIterator[Child]:
    found = Child(sys.executable, "-c", PROGRAM, env=env)
    await found.start()
    try:
        yield found
    finally:
        await found.end()


async def test_each_question_to_a_child_process_gets_its_own_answer() -> None:
    async with running() as found:
        answers = await asyncio.gather(*(found.ask({"number": n}, LIMIT) for n in range(5)))
    assert answers == [{"number": n} for n in range(5)]


async def test_its_end_is_that_of_all_it_started_and_of_its_folder() -> None:
    async with running() as found:
        lost = await found.ask("grandchild", LIMIT)
        assert found.alive and psutil.pid_exists(lost) and found.folder.is_dir()
    assert not found.alive
    until(lambda: not _runs(lost))
    assert not found.folder.exists()


async def test_a_dead_child_process_is_a_service_failure_with_its_output() -> None:
    async with running() as found:
        with pytest.raises(
            ServiceFailure,
            match=rf"process {found.pid} of .*python\S* died; the end of its stderr: out of memory",
        ):
            await found.ask("die", LIMIT)
        with pytest.raises(ServiceFailure, match="died"):
            await found.ask("anything", LIMIT)


@pytest.mark.parametrize(
    ("question", "fault"),
    [("nothing", r"no answer within 0\.05 s"), ("nonsense", "valid JSON")],
)
async def test_one_that_gives_no_answer_or_nonsense_is_killed(question: str, fault: str) -> None:
    async with running() as found:
        assert await found.ask("hello", LIMIT) == "hello"
        with pytest.raises(ServiceFailure, match=fault):
            await found.ask(question, 30 if question == "nonsense" else 0.05)
        with pytest.raises(ServiceFailure, match="died"):
            await found.ask("hello", LIMIT)


async def test_a_late_answer_is_never_used_for_another_question() -> None:
    async with running() as found:
        asking = asyncio.create_task(found.ask("first", LIMIT))
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        with pytest.raises(ServiceFailure, match="died"):
            await found.ask("second", LIMIT)


async def test_it_sees_what_it_is_given_and_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "planted")
    async with running(BOARD="go") as found:
        seen = await found.ask("environment", LIMIT)
    assert (seen["BOARD"], seen["TMPDIR"], seen["PATH"]) == (
        "go",
        str(found.folder),
        os.environ["PATH"],
    )
    assert "planted" not in seen.values()


async def test_a_program_that_is_not_there_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    found = Child("no-such-engine")
    with pytest.raises(FileNotFoundError):
        await found.start()
    assert (found.alive, found.pid) == (False, 0)
    with pytest.raises(ServiceFailure, match="no-such-engine "):
        await found.ask("hello", LIMIT)
    await found.end()
    assert os.listdir(tmp_path) == []


def test_child_processes_of_a_killed_run_end_at_the_next_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    command = [sys.executable, "-c", OWNER, PROGRAM]
    owner = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent)
    assert owner.stdout is not None
    _, lost, folder = owner.stdout.readline().split()
    with monkeypatch.context() as hour:
        set_clock(hour, 3600)
        child_process.sweep.__wrapped__()
        assert private_folder().parent == Path(folder).parent
    assert _runs(int(lost)), "its owner is alive"
    assert Path(folder).exists()
    os.kill(owner.pid, signal.SIGKILL)
    owner.wait()
    child_process.sweep.__wrapped__()
    until(lambda: not _runs(int(lost)))  # a kill takes effect later on a busy machine
    private_folder().rmdir()
    assert not Path(folder).exists()


def test_a_process_whose_mark_is_nonsense_is_left_alone() -> None:
    for mark in ("me", "{}", "[1]", '{"host": 1, "pid": "x", "started": 0, "boot": 0}'):
        with subprocess.Popen(
            ["cat"], stdin=subprocess.PIPE, env={**os.environ, "AGENTFLY_OWNER": mark}
        ) as stranger:
            child_process.sweep.__wrapped__()
            assert stranger.poll() is None


def _runs(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
