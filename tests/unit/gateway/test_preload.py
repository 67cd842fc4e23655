"""Programs that are forked from an interpreter that has imported their modules."""

import asyncio
import json
import signal
import sys
from contextlib import suppress
from pathlib import Path
from textwrap import dedent
from typing import Any

import psutil
import pytest

from agentfly_core.agents.program import ProgramAgent
from agentfly_core.gateway.process import MOST_OUTPUT, ProgramCommand, ProgramEnd
from tests.support.waiting import until

PRELOAD = ("fractions",)


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
    warm = command(tmp_path, "import os; print(os.getppid())")
    watcher = await ended(
        command(tmp_path, "import os, psutil; print(psutil.Process().parent().ppid())")
    )
    interpreter = psutil.Process(int(watcher.answer or ""))
    assert "fork_server.py" in " ".join(interpreter.cmdline())
    interpreter.kill()
    interpreter.wait()
    assert (await ended(warm)).code == 0


async def test_a_module_that_fails_is_named(tmp_path):
    missing = command(tmp_path, "print()", preload=("no_such_module",))
    with pytest.raises(OSError, match=r"preload=\['no_such_module'\] failed .* No module named"):
        await ended(missing)


@pytest.mark.parametrize("words", [("node", "agent.js"), ("python",), ("python", "-m", "agent")])
def test_preload_needs_a_script_of_python(words):
    with pytest.raises(ValueError, match=r"preload=\['openai'\]\): expected a command \[python, s"):
        ProgramAgent(words, preload=("openai",))


def _runs(pid: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False
