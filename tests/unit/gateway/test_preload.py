"""Programs that are forked from an interpreter that has imported their modules."""

import asyncio
import json
import signal
import subprocess
import sys
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from textwrap import dedent
from typing import Any

import psutil
import pytest

from agentfly_core.agents.program import ProgramAgent
from agentfly_core.gateway.process import MOST_OUTPUT, ProgramCommand, ProgramEnd
from agentfly_core.gateway.warm import Forked, WarmInterpreter
from agentfly_core.records.trajectory import Ending
from agentfly_core.rollout.child_process import sweep
from agentfly_core.system.supervisor import die_with_parent
from agentfly_core.testing.episodes import (
    ADD,
    episode_specs,
    play_all,
    rollout_spec,
    saying,
    scripted,
)
from tests.support import processes
from tests.support.waiting import until

PRELOAD = ("fractions",)
INTERPRETER = "import psutil; print(psutil.Process().parent().ppid())"


def command(folder: Path, lines: str, *arguments: str, **settings: Any) -> ProgramCommand:
    """A preloaded program of these lines."""
    script = folder / "program.py"
    script.write_text(dedent(lines))
    words = (sys.executable, str(script), *arguments)
    return ProgramCommand(words, **{"preload": PRELOAD, **settings})


async def ended(program: ProgramCommand, line: str = "", **env: str) -> ProgramEnd:
    async with program.started(line, env) as running:
        return await running.wait()


async def test_a_forked_program_runs_as_a_started_one(tmp_path, monkeypatch):
    monkeypatch.setenv("MY_FOLDER", "a")
    monkeypatch.setenv("MY_SECRET", "b")
    lines = """
        import json, os, sys
        import beside
        mine = {name: value for name, value in os.environ.items() if name.startswith("MY_")}
        line = sys.stdin.readline()
        seen = [__name__, sys.argv[1:], line, mine, os.getcwd(), sys.path[0], beside.NAME]
        print(json.dumps(seen))
        print("done", file=sys.stderr)
    """
    (tmp_path / "beside.py").write_text("NAME = 'beside'")
    warm = command(tmp_path, lines, "--fast", inherited=("MY_FOLDER",))
    cold = command(tmp_path, lines, "--fast", inherited=("MY_FOLDER",), preload=())
    ends = [await ended(one, "é!", MY_KEY="c") for one in (warm, cold)]
    assert ends[0] == ends[1]
    name, arguments, line, mine, *_ = json.loads(ends[0].output)
    assert (name, arguments, line) == ("__main__", ["--fast"], "é!\n")
    assert mine == {"MY_FOLDER": "a", "MY_KEY": "c"}


async def test_its_modules_are_there_before_it_begins(tmp_path):
    warm = command(tmp_path, "import sys; print('fractions' in sys.modules)")
    assert (await ended(warm)).answer == "True"


async def test_forked_programs_draw_different_numbers(tmp_path):
    warm = command(tmp_path, "import random, os; print(random.random(), os.getpid())")
    ends = await asyncio.gather(*(ended(warm) for _ in range(8)))
    answers = [(end.answer or "").split() for end in ends]
    assert [len({*column}) for column in zip(*answers, strict=True)] == [8, 8]


@pytest.mark.parametrize(
    ("lines", "code", "errors"),
    [
        ("raise SystemExit(3)", 3, ""),
        ("raise SystemExit('no idea')", 1, "no idea"),
        ("1 / 0", 1, "ZeroDivisionError"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", -signal.SIGSEGV, ""),
        ("import sys; sys.stdout.write('x' * 9_999_999)", 0, ""),
    ],
    ids=["code", "text", "error", "signal", "output"],
)
async def test_its_end_is_that_of_a_started_program(tmp_path, lines, code, errors):
    end = await ended(command(tmp_path, lines))
    assert (end.code, errors in end.how) == (code, True)
    assert len(end.output) <= MOST_OUTPUT


async def test_threads_and_exit_functions_end_before_the_program(tmp_path):
    lines = """
        import atexit, threading, time
        atexit.register(print, "last")
        threading.Thread(target=lambda: (time.sleep(0.2), print("thread"))).start()
        print("main")
    """
    assert (await ended(command(tmp_path, lines))).output.split() == [b"main", b"thread", b"last"]


async def test_the_client_of_openai_has_made_its_first_request(tmp_path):
    lines = "import sys; print('openai.resources.chat.completions' in sys.modules)"
    warm = command(tmp_path, lines, preload=("openai",))
    assert (await ended(warm)).answer == "True"


async def test_a_forked_program_is_killed_with_its_descendants(tmp_path):
    lines = f"""
        import os, subprocess, sys, time
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        with open({str(tmp_path / "part")!r}, "w") as file:
            file.write(str(child.pid))
        os.rename({str(tmp_path / "part")!r}, {str(tmp_path / "pid")!r})
        time.sleep(600)
    """
    pid = tmp_path / "pid"
    async with command(tmp_path, lines).started("", {}) as running:
        await asyncio.to_thread(until, pid.exists)
    assert await running.code == -signal.SIGKILL
    until(lambda: not _runs(int(pid.read_text())))


async def test_a_dead_interpreter_is_replaced(tmp_path):
    warm = command(tmp_path, INTERPRETER)
    dead = psutil.Process(int((await ended(warm)).answer or ""))
    assert "fork_server.py" in " ".join(dead.cmdline())
    assert (await ended(warm)).answer == str(dead.pid)
    dead.kill()
    dead.wait()
    new = psutil.Process(int((await ended(warm)).answer or ""))
    assert "fork_server.py" in " ".join(new.cmdline())
    assert new != dead


async def test_a_dying_interpreter_leaves_its_programs_running(tmp_path):
    go, lines = tmp_path / "go", INTERPRETER
    waiting = f"""
        import os, time
        while not os.path.exists({str(go)!r}):
            time.sleep(0.01)
    """
    warm = command(tmp_path, dedent(waiting) + dedent(lines))
    async with AsyncExitStack() as stack:
        programs = [await stack.enter_async_context(warm.started("", {})) for _ in range(3)]
        watcher = psutil.Process(programs[0].pid).parent()
        interpreter = watcher and watcher.parent()
        assert interpreter
        interpreter.kill()
        interpreter.wait()
        go.touch()
        ends = [await program.wait() for program in programs]
        new = await ended(warm)
    assert [end.code for end in (*ends, new)] == [0] * 4
    assert new.answer != str(interpreter.pid)


@pytest.mark.parametrize(("deaths", "ending"), [(1, Ending.NO_TOOL_CALLS), (2, Ending.FAILED)])
async def test_a_program_whose_interpreter_dies_is_played_again(
    tmp_path, monkeypatch, deaths, ending
):
    """It dies after it was found alive, before it forks."""
    fork, killed = WarmInterpreter.fork, []

    def dying(warm: WarmInterpreter, *order: Any) -> Forked:
        if len(killed) < deaths:
            children = psutil.Process().children()
            (process,) = (one for one in children if script in processes.command(one))
            killed.append(process)
            process.kill()
        return fork(warm, *order)

    monkeypatch.setattr(WarmInterpreter, "fork", dying)
    words = command(tmp_path, "print(99)").words
    script = words[1]
    spec = rollout_spec(agent=ProgramAgent(words, preload=PRELOAD))
    (trajectory, *_), *_ = await play_all(episode_specs(ADD), spec, scripted(saying("99")))
    assert (trajectory.ending, len(killed)) == (ending, deaths)
    assert trajectory.answer == "99" or "ended with exit code -9" in (trajectory.error or "")


def test_programs_of_a_killed_owner_end_at_the_next_start(tmp_path):
    warm = command(tmp_path, "import os, time; print(os.getpid(), flush=True); time.sleep(600)")
    lines = f"""
        import asyncio
        from agentfly_core.gateway.process import ProgramCommand

        async def main():
            async with ProgramCommand({warm.words!r}, (), {PRELOAD!r}).started("", {{}}) as program:
                print(program.pid, flush=True)
                await program.wait()

        asyncio.run(main())
    """
    owner = subprocess.Popen(
        [sys.executable, "-c", dedent(lines)], stdout=subprocess.PIPE, preexec_fn=die_with_parent
    )
    assert owner.stdout is not None
    program = psutil.Process(int(owner.stdout.readline()))
    sweep.__wrapped__()
    assert _runs(program.pid), "its owner is alive"
    owner.kill()
    owner.wait()
    sweep.cache_clear()
    asyncio.run(ended(command(tmp_path, "")))
    assert not _runs(program.pid)


async def test_a_module_that_fails_is_named(tmp_path):
    missing = command(tmp_path, "print()", preload=("no_such_module",))
    with pytest.raises(OSError, match=r"preload=\['no_such_module'\] failed .* No module named"):
        await ended(missing)


@pytest.mark.parametrize("words", [("node", "agent.js"), ("python",), ("python", "-m", "agent")])
def test_preload_needs_a_script_of_python(words):
    with pytest.raises(
        ValueError, match=r"preload=\['openai'\]\): preload needs a command such as \[p"
    ):
        ProgramAgent(words, preload=("openai",))


def _runs(pid: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False
