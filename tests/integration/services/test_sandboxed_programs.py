"""Programs in the sandbox play as others do, and reach only the gateway."""

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any

import psutil
import pytest

from agentfly_core.agents.program import ProgramAgent
from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.gateway.process import ProgramCommand
from agentfly_core.inference.sampler import Sampler
from agentfly_core.records.trajectory import Ending, Problem, Trajectory
from agentfly_core.rollout.child_process import sweep
from agentfly_core.sandbox import confined
from agentfly_core.sandbox.attacks import ATTACKS, INSIDE, NAMESPACES, Attack
from agentfly_core.sandbox.guest.confined import LIMITS
from agentfly_core.sandbox.preflight import chosen
from agentfly_core.sandbox.self_test import target
from agentfly_core.system.service import SANDBOX
from agentfly_core.system.supervisor import die_with_parent
from agentfly_core.testing.episodes import episode_specs, play_all, rollout_spec, saying, scripted
from agentfly_core.testing.letters import as_letters
from tests.support.deadlines import end_after_first_reply
from tests.support.project import ROOT
from tests.support.waiting import LIMIT, until

pytestmark = [pytest.mark.service, pytest.mark.usefixtures("sandbox")]
PROBLEM = Problem("add-41-58", "41+58?", {"answer": "99"})
ASK = """
import json, os, signal, socket, subprocess, sys, time, urllib.request

def ask(text):
    body = {"model": "any", "messages": [{"role": "user", "content": text}]}
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode())) as response:
        return json.load(response)["choices"][0]["message"]["content"]

"""
CLIENT = """
import json, sys
from openai import OpenAI

problem = json.loads(sys.stdin.readline())
client, messages = OpenAI(), [{"role": "user", "content": problem["prompt"]}]
for number in range(3):
    completion = client.chat.completions.create(model="any", messages=messages)
    messages += [completion.choices[0].message, {"role": "user", "content": f"{number}?"}]
print(completion.choices[0].message.content)
"""
OTHER_LIMITS = ("start 300 processes", "hand out a link for a result")
TRIED = [
    attack
    for attack in ATTACKS
    if not {"timeout", "oom", "output_limit"} & {*attack.ends} and attack.name not in OTHER_LIMITS
]
"""Attacks whose limits are those of programs, or that need none."""


async def played(
    folder: Path,
    lines: str,
    settings: dict[str, Any] | None = None,
    sampler: Sampler | None = None,
) -> Trajectory:
    """The episode of a sandboxed program of these lines, which may call `ask`."""
    script = folder / "program.py"
    script.write_text(ASK + dedent(lines))
    given = {"sandbox": True, **(settings or {})}
    agent = ProgramAgent((sys.executable, str(script)), **given)
    spec = rollout_spec(agent=agent, deadline=LIMIT)
    policy = sampler or scripted(saying("99", "98", "97"))
    (trajectory, *_), *_ = await play_all(episode_specs(PROBLEM), spec, policy)
    return trajectory


def processes(folder: Path) -> list[psutil.Process]:
    """The processes of the program in a folder, and of its sandbox."""
    every = psutil.process_iter(["cmdline"])
    return [one for one in every if str(folder / "program.py") in (one.info["cmdline"] or ())]


async def test_the_openai_client_plays_with_the_same_tokens_as_outside(tmp_path):
    both = [await played(tmp_path, CLIENT, {"sandbox": inside}) for inside in (True, False)]
    inside, outside = both
    assert (inside.error, inside.answer, inside.ending) == (None, "97", Ending.NO_TOOL_CALLS)
    assert inside.turns == outside.turns
    assert as_letters(inside) == "^u41+58?$^a99$^u0?$^a98$^u1?$^a97$"


@pytest.mark.parametrize("attack", TRIED, ids=lambda attack: attack.name)
async def test_an_attack_is_stopped(tmp_path, attack: Attack):
    outside = {kind: os.readlink(f"/proc/self/ns/{kind}") for kind in NAMESPACES}
    with target() as on:
        port = on.listener.getsockname()[1]
        code = INSIDE.format(outside=outside)
        code += attack.code.format(file=on.file, port=port, pid=on.bystander.pid)
        lines = f"""
            import contextlib, io
            ask("x")
            os.chdir("/sandbox")
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                try:
                    exec({code!r})
                except OSError as error:
                    print(error)
            print(json.dumps({{"answer": printed.getvalue()}}))
        """
        trajectory = await played(tmp_path, lines)
        assert trajectory.error is None
        answer = trajectory.answer or ""
        assert answer.startswith("inside\n")
        assert "REACHED" not in answer
        assert on.secret not in answer
        assert await on.harmed() == ""
    assert attack.ends == ("ok",) or "No space left" in answer


@pytest.mark.parametrize(
    "attempt",
    [
        "socket.create_connection(('127.0.0.1', PORT), 1)",
        "socket.create_connection(('8.8.8.8', 53), 1)",
        "socket.create_connection(('HOST', PORT), 1)",
        "socket.socket(socket.AF_UNIX)",
        "socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)",
        "socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
        "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
        "socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)",
        "socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132)",
        "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
        "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
        "socket.socket(40)",
        "socket.create_server(('127.0.0.1', 80))",
        "open('ROOT/README.md')",
        "open('FOLDER/secret.txt')",
        "open('/proc/1/root/FOLDER/secret.txt')",
        "open('/proc/1/environ')",
        "open('/proc/sys/kernel/hostname')",
        "1 / (socket.gethostname() != 'sandbox')",
        "open(__file__, 'a')",
        "open('/here', 'w')",
        "open(sys.prefix + '/here', 'w')",
        "os.unlink(__file__)",
        "os.kill(1, 9) or 1 / (os.getppid() != 1)",
    ],
)
async def test_nothing_but_the_gateway_is_reached(tmp_path, attempt):
    with socket.create_server(("0.0.0.0", 0)) as server:
        attempt = attempt.replace("PORT", str(server.getsockname()[1])).replace("ROOT", str(ROOT))
        (tmp_path / "secret.txt").write_text("readable by all")
        attempt = attempt.replace("FOLDER", str(tmp_path))
        attempt = attempt.replace("HOST", socket.gethostbyname(socket.gethostname()))
        lines = f"""
            ask("x")
            try:
                print("REACHED", {attempt})
            except (OSError, ArithmeticError) as error:
                print(type(error).__name__)
        """
        trajectory = await played(tmp_path, lines)
    assert trajectory.error is None
    assert "REACHED" not in (trajectory.answer or "REACHED")


async def test_it_uses_its_own_port_pairs_and_threads(tmp_path):
    lines = """
        import asyncio, concurrent.futures
        async def main():
            async def echo(reader, writer):
                writer.write(await reader.readline())
                writer.close()
            server = await asyncio.start_server(echo, "localhost", 8000)
            reader, writer = await asyncio.open_connection("localhost", 8000)
            writer.write(b"pair\\n")
            return (await reader.readline()).decode().strip()
        with concurrent.futures.ThreadPoolExecutor(32) as threads:
            replies = [*threads.map(ask, ["x", "y"])]
        child = subprocess.run([sys.executable, "-c", "print(7)"], capture_output=True, text=True)
        print(len(replies), asyncio.run(main()), child.stdout.strip())
    """
    assert (await played(tmp_path, lines)).answer == "2 pair 7"


async def test_its_environment_has_named_variables_only(tmp_path, monkeypatch):
    for name in [*os.environ]:
        if name not in ("PATH", SANDBOX):
            monkeypatch.delenv(name)
    for name in ("MY_SECRET", "MY_NAME", "OPENAI_ORG_ID", "PYTHONPATH", "TZ"):
        monkeypatch.setenv(name, name)
    named = {"HOME": "/sandbox", "TMPDIR": "/tmp", "MY_NAME": "MY_NAME", "TZ": "TZ"}
    named |= {"OPENAI_API_KEY": "agentfly"}
    lines = """
        ask("x")
        print(json.dumps(dict(os.environ)))
    """
    trajectory = await played(tmp_path, lines, {"environment": ("MY_NAME",)})
    shown = json.loads(trajectory.answer or "")
    assert re.fullmatch(r"http://127\.0\.0\.1:80/[0-9a-f]{32}/v1", shown.pop("OPENAI_BASE_URL"))
    # the mark of its owner, and the locale that Python sets without one
    assert {"AGENTFLY_OWNER", "LC_CTYPE"} >= {*shown} - {"PATH", *named}
    assert {name: shown[name] for name in named} == named


async def test_it_sees_its_files_and_an_empty_temporary_folder(tmp_path, monkeypatch):
    for name in ("beside.py", "other.py", "data.txt"):
        (tmp_path / name).write_text("NAME = 'beside'")
    monkeypatch.chdir(tmp_path)
    lines = """
        import tempfile, beside
        ask("x")
        new = os.listdir(os.environ["HOME"])
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("x" * 1_000_000)
        open(os.path.expanduser("~/left"), "w").close()
        print(sorted(os.listdir(".")), beside.NAME, open("data.txt").read()[:4], new)
    """
    for _ in range(2):
        trajectory = await played(tmp_path, lines, {"files": ("beside.py", "data.txt")})
        assert trajectory.answer == "['beside.py', 'data.txt', 'program.py'] beside NAME []"


async def test_its_processes_and_memory_are_limited(tmp_path):
    lines = f"""
        ask("x")
        started = 0
        try:
            while started < {2 * LIMITS.processes}:
                if os.fork() == 0:
                    time.sleep(600)
                started += 1
        except OSError:
            pass
        try:
            bytearray({2 * LIMITS.memory})
        except MemoryError:
            print(started)
    """
    started = int((await played(tmp_path, lines)).answer or 0)
    assert LIMITS.processes // 2 < started < LIMITS.processes
    until(lambda: not processes(tmp_path))


async def test_the_shared_memory_of_its_processes_is_limited(tmp_path, monkeypatch):
    words = confined.words
    monkeypatch.setattr(confined, "words", lambda *given: with_less_memory(words(*given)))
    lines = """
        import mmap
        ask("x")
        block = b"x" * 2**20
        for _ in range(3):
            if os.fork() == 0:
                shared = mmap.mmap(-1, 2**27)
                for _ in range(128):
                    shared.write(block)
                time.sleep(600)
        time.sleep(600)
    """
    trajectory = await played(tmp_path, lines)
    assert trajectory.ending is Ending.FAILED
    assert "SIGKILL: The sandbox has at most 256 MiB of memory" in (trajectory.error or "")


def with_less_memory(words: Sequence[str]) -> tuple[str, ...]:
    """The command that starts a sandbox, with a limit of 256 MiB."""
    less = "import agentfly_core.sandbox.guest.confined as c; from dataclasses import replace; "
    less += "c.LIMITS = replace(c.LIMITS, memory=2**28); c.main()"
    begin = words[3].replace("from agentfly_core.sandbox.guest.confined import main; main()", less)
    assert begin != words[3]
    return (*words[:3], begin, *words[4:])


@pytest.mark.parametrize(
    ("lines", "ending", "error"),
    [
        ("sys.exit(3)", Ending.FAILED, "ended with exit code 3"),
        ("ask('x'); sys.exit('no idea')", Ending.AGENT_ERROR, "exit code 1: no idea"),
        ("ask('x'); os.kill(os.getpid(), 9)", Ending.FAILED, "was killed by SIGKILL"),
        ("ask('x'); os.abort()", Ending.FAILED, "was killed by SIGABRT"),
        ("ask('x'); os.kill(os.getpid(), 15)", Ending.FAILED, "was killed by SIGTERM"),
        ("subprocess.Popen(['sleep', '600']); os.kill(-1, 9)", Ending.FAILED, "without a request"),
    ],
)
async def test_the_cause_of_its_end_is_reported(tmp_path, lines, ending, error):
    trajectory = await played(tmp_path, lines)
    assert trajectory.ending is ending
    assert error in (trajectory.error or "")
    until(lambda: not processes(tmp_path))


async def test_at_its_deadline_it_ends_with_its_descendants(tmp_path, monkeypatch):
    end_after_first_reply(monkeypatch, PROBLEM.id)
    lines = """
        for _ in range(3):
            if os.fork() == 0:
                os.setsid()
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                time.sleep(600)
        ask("x")
        time.sleep(600)
    """
    trajectory = await played(tmp_path, lines)
    assert trajectory.ending is Ending.AGENT_ERROR
    assert "did not end within 1 s" in (trajectory.error or "")
    until(lambda: not processes(tmp_path))


@pytest.mark.parametrize("place", [0, 1, 2], ids=["starter", "first process", "program"])
async def test_a_killed_process_ends_all_and_it_is_played_again(tmp_path, place):
    killed: list[psutil.Process] = []

    async def policy(conversation: Conversation) -> str:
        if not killed:
            killed.extend(processes(tmp_path))
            killed[place].kill()
        return "99"

    trajectory = await played(tmp_path, "print(ask('x'))", sampler=scripted(policy))
    assert (trajectory.error, trajectory.answer, len(killed)) == (None, "99", 3)
    until(lambda: not processes(tmp_path))


def test_programs_of_a_killed_owner_end_at_the_next_start(tmp_path):
    script = tmp_path / "program.py"
    erased = f"[sys.executable, '-c', 'import time; time.sleep(600)', {str(script)!r}], {{}}"
    script.write_text(f"{ASK}\nask('x')\nos.fork()\nos.execve(sys.executable, {erased})")
    lines = f"""
        import asyncio
        from agentfly_core.agents.program import ProgramAgent
        from agentfly_core.records.trajectory import Problem
        from agentfly_core.testing.episodes import episode_specs, play_all, rollout_spec, scripted

        async def policy(conversation):
            print("begun", flush=True)
            return "99"

        agent = ProgramAgent(({sys.executable!r}, {str(script)!r}), sandbox=True)
        specs = episode_specs(Problem("one", "1?"))
        asyncio.run(play_all(specs, rollout_spec(agent=agent), scripted(policy)))
    """
    command = [sys.executable, "-c", dedent(lines)]
    owner = psutil.Popen(command, stdout=subprocess.PIPE, preexec_fn=die_with_parent)
    assert owner.stdout.readline() == b"begun\n"
    assert len(processes(tmp_path)) >= 3
    owner.kill()
    owner.wait()
    sweep.cache_clear()
    asyncio.run(_started(ProgramCommand(("true",))))
    until(lambda: not processes(tmp_path))


async def _started(command: ProgramCommand) -> None:
    async with command.started("", {}):
        pass


async def test_without_isolation_it_runs_outside(tmp_path, monkeypatch):
    monkeypatch.setenv(SANDBOX, "unsafe")
    trajectory = await played(tmp_path, "ask('x'); print(os.getpid() > 2, os.getcwd())")
    assert trajectory.answer == f"True {Path.cwd()}"
    chosen().close()
