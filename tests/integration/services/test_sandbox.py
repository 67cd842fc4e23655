"""Attacks on the sandbox; each makes sure first that it is inside private namespaces, and every
bomb is bounded.
"""

import asyncio
import resource
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from agentfly_core.sandbox.attacks import ATTACKS, Attack
from agentfly_core.sandbox.backends import Bubblewrap, ForkServer, Unavailable
from agentfly_core.sandbox.cgroups import Cgroups
from agentfly_core.sandbox.guest.protocol import MIB, ExecRequest, ExecResult, Limits, Status
from agentfly_core.sandbox.preflight import chosen
from agentfly_core.sandbox.running import run
from agentfly_core.sandbox.sandbox import Sandbox
from agentfly_core.sandbox.self_test import attacked
from tests.support.project import ROOT
from tests.support.sandbox_processes import GUARD, IDLE, children, groups, processes, until

pytestmark = pytest.mark.service
MAKES_NAMESPACES = [
    "unshare",
    "-Urmp",
    "--fork",
    "--mount-proc",
    "mount",
    "-t",
    "tmpfs",
    "none",
    "/tmp",
]
PROGRAM = """
import atexit, subprocess, sys, threading, multiprocessing, asyncio, concurrent.futures
def double(x): return 2 * x
threading.Thread(target=lambda: print("thread")).start()
command = [sys.executable, "-c", "print(1 + 1)"]
print(subprocess.run(command, capture_output=True, text=True).stdout.strip())
with multiprocessing.Pool(2) as pool: print(pool.map(double, [1, 2]))
async def child():
    cat = await asyncio.create_subprocess_exec("cat", stdin=0, stdout=-1)
    return (await cat.communicate())[0]
print(asyncio.run(child()))
with concurrent.futures.ProcessPoolExecutor(2) as pool: print(list(pool.map(double, [3, 4])))
here, there = multiprocessing.Pipe()
here.send("sent"); print(there.recv())
atexit.register(print, "end")
"""
PRINTED = ["2", "[2, 4]", "[6, 8]", "b'given'", "end", "sent", "thread"]


@pytest.fixture(scope="module", autouse=True)
def sandbox() -> Iterator[Sandbox]:
    """The one of this machine, ended with this module."""
    try:
        here = chosen()
    except Unavailable as error:
        if subprocess.run(MAKES_NAMESPACES, capture_output=True, check=False).returncode == 0:
            raise
        pytest.skip(str(error))
    yield here
    here.close()


@pytest.fixture
def bubblewrap() -> Iterator[Sandbox]:
    """One of bubblewrap's; skips where it is not installed."""
    if not shutil.which("bwrap"):
        pytest.skip("bubblewrap is not installed")
    here = Sandbox(Bubblewrap(), Cgroups.detect())
    yield here
    here.close()


async def works(text: str = "print(6 * 7)") -> bool:
    result = await run(text)
    return (result.status, result.stdout) == (Status.OK, "42\n")


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
async def test_an_attack_is_stopped_and_the_next_run_is_fine(
    sandbox: Sandbox, attack: Attack
) -> None:
    (outcome,) = await attacked(sandbox, [attack])
    assert outcome.stopped, outcome.detail
    assert await works()


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
async def test_bubblewrap_stops_it_too(bubblewrap: Sandbox, attack: Attack) -> None:
    (outcome,) = await attacked(bubblewrap, [attack])
    assert outcome.stopped, outcome.detail


async def test_ten_gigabytes_end_as_oom_and_do_not_become_ours() -> None:
    before = psutil.Process().memory_info().rss
    result = await run(GUARD + "bytearray(10 << 30)")
    assert result.status is Status.OOM
    assert psutil.Process().memory_info().rss - before < 50 * MIB


async def test_a_gigabyte_of_output_is_kept_up_to_a_megabyte() -> None:
    result = await run(GUARD + "for _ in range(1024): print('x' * MB)".replace("MB", str(MIB)))
    assert (result.status, result.truncated) == (Status.OUTPUT_LIMIT, True)
    assert len(result.stdout) + len(result.stderr) == MIB


async def test_limits_hold_for_all_processes_without_control_groups() -> None:
    (attack,) = [attack for attack in ATTACKS if attack.name == "take it with eight processes"]
    sandbox = Sandbox(ForkServer(), Cgroups("none", ()))
    (outcome,) = await attacked(sandbox, [attack])
    sandbox.close()
    assert outcome.stopped, outcome.detail


async def test_a_run_sees_no_files_of_an_earlier_run() -> None:
    leave = "import json, os; json.left = 1; os.environ['LEFT'] = '1'\n"
    leave += "for folder in ('.', '/tmp', '/dev/shm'): open(folder + '/left', 'w').write('1')"
    find = (
        "import json, os; print(hasattr(json, 'left'), os.environ.get('LEFT'), os.listdir('.'))\n"
    )
    find += "print(os.listdir('/tmp'), os.listdir('/dev/shm'))"
    assert (await run(leave)).status is Status.OK
    assert (await run(find)).stdout == "False None ['main.py']\n[] []\n"


async def test_random_numbers_differ_between_runs() -> None:
    code = "import random, importlib.util\nprint(random.random())\n"
    code += (
        "if importlib.util.find_spec('numpy'):\n    import numpy\n    print(numpy.random.rand())"
    )
    first, second = (await run(code)).stdout.split(), (await run(code)).stdout.split()
    assert not set(first) & set(second)


async def test_modules_are_imported_in_the_warm_process(sandbox: Sandbox) -> None:
    if not sandbox.backend.warm:
        pytest.skip("this backend starts an interpreter for each execution")
    code = "import sys; print('colorsys' in sys.modules, 'wave' in sys.modules)"
    missing = [f"no_such_module_{number}" for number in range(300)]
    assert (await run(code, modules=[*missing, "colorsys"])).stdout == "True False\n"


async def test_packages_can_be_imported_and_hold_no_data() -> None:
    code = "import pandas, sklearn.svm, sklearn.datasets as d, os\n"
    code += "print(os.listdir(os.path.join(os.path.dirname(d.__file__), 'data')))"
    result = await run(code, limits=Limits(wall=120.0, cpu=60))
    assert (result.stdout, result.stderr) == ("[]\n", "")


async def test_our_environment_and_descriptors_are_hidden(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PLANTED_SECRET", "a41f09c2")
    result = await run(
        "import os; print(sorted(os.environ)); print(open('/proc/self/environ').read())"
    )
    assert "PLANTED" not in result.stdout
    result = await run(
        "import os\nfor n in range(64):\n    try: os.fstat(n); print(n)\n    except OSError: pass"
    )
    assert result.stdout.split() == ["0", "1", "2"]


async def test_only_the_interpreter_and_its_libraries_are_visible() -> None:
    seen = await run(
        f"import os; print([os.path.exists(path) for path in ('/home', '{ROOT}/README.md', "
        f"'{__file__}')])"
    )
    assert seen.stdout == "[False, False, False]\n"


async def test_files_go_in_and_plain_files_come_out() -> None:
    code = "text = open('data/in.txt').read()\nopen('out.txt', 'w').write(text.upper() + input())"
    result = await run(
        code, {"data/in.txt": "hello "}, stdin="world", collect=["out.txt", "missing.txt"]
    )
    assert result.files == {"out.txt": b"HELLO world"}


async def test_result_files_larger_than_the_disk_are_skipped() -> None:
    code = (
        "for name in 'ab':\n    with open(name, 'w') as file: file.truncate(40 << 20)\n"
        "open('c', 'w').write('c')"
    )
    result = await run(code, collect=["a", "b", "c"])
    assert {name: len(content) for name, content in result.files.items()} == {"a": 40 << 20, "c": 1}


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x", "", "main.py", "a\0b"])
async def test_a_file_name_that_leads_outside_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="file name"):
        await run("", {name: b""})
    with pytest.raises(ValueError, match="file name"):
        await run("", collect=[name])


@pytest.mark.parametrize(
    ("code", "status", "exit_code"),
    [
        ("pass", Status.OK, 0),
        ("import os; os._exit(0)", Status.OK, 0),
        ("import os; os._exit(3)", Status.ERROR, 3),
        ("import sys; sys.exit('no')", Status.ERROR, 1),
        ("raise SystemExit(256)", Status.OK, 0),
        ("1 / 0", Status.ERROR, 1),
        ("open('/dev/null', 'w').write('1'); open('/dev/urandom', 'rb').read(1)", Status.OK, 0),
        ("print(", Status.ERROR, 1),
        ("def f(): f()\nf()", Status.ERROR, 1),
        ("import os; os.kill(os.getpid(), 15)", Status.KILLED, -signal.SIGTERM),
        ("import os; os.kill(os.getpid(), 11)", Status.KILLED, -signal.SIGSEGV),
        ("import os; os.close(1); os.close(2)", Status.OK, 0),
        ("import sys; sys.stdout = sys.stderr = None", Status.OK, 0),
        ("import sys; sys.modules.clear(); raise MemoryError", Status.OOM, 1),
        ("\udc80", Status.ERROR, 1),
        ("\0", Status.ERROR, 1),
    ],
)
async def test_sandboxed_code_never_causes_a_service_failure(
    code: str, status: Status, exit_code: int
) -> None:
    result = await run(code)
    assert (result.status, result.exit_code) == (status, exit_code), result


async def test_an_exception_keeps_output_and_hides_our_frames() -> None:
    result = await run("print('before')\ndef f(x):\n    return 1 / x\nf(0)")
    assert result.stdout == "before\n"
    assert [line for line in result.stderr.splitlines() if "File" in line] == [
        '  File "/sandbox/main.py", line 4, in <module>',
        '  File "/sandbox/main.py", line 3, in f',
    ]


async def test_an_interrupted_loop_keeps_its_output() -> None:
    result = await run("print('before')\nwhile True: pass", limits=Limits(wall=0.3))
    assert (result.status, result.stdout) == (Status.TIMEOUT, "before\n")


async def test_threads_subprocesses_pools_and_exit_functions_work() -> None:
    result = await run(PROGRAM, stdin="given")
    assert sorted(result.stdout.splitlines()) == PRINTED, result.stderr


async def test_they_work_in_bubblewrap_with_the_requested_disk(
    bubblewrap: Sandbox,
) -> None:
    result = await bubblewrap.execute(ExecRequest(PROGRAM.encode(), stdin=b"given"))
    assert sorted(result.stdout.splitlines()) == PRINTED, result.stderr
    fill = b"open('x', 'wb').write(bytes(2 << 20))"
    assert (
        await bubblewrap.execute(ExecRequest(fill, limits=Limits(disk=MIB)))
    ).status is Status.DISK_LIMIT
    written = (
        b"try: open('/dev/x', 'w')\nexcept OSError: print('refused')\n"
        b"open('/dev/stderr', 'w').write('seen')"
    )
    result = await bubblewrap.execute(ExecRequest(written))
    assert (result.stdout, result.stderr) == ("refused\n", "seen")


async def test_a_hundred_executions_32_at_once_leave_nothing(sandbox: Sandbox) -> None:
    await works()
    await until(lambda: children() == IDLE)
    before = psutil.Process().num_fds()
    together = asyncio.Semaphore(32)

    async def one(number: int) -> ExecResult:
        async with together:
            return await run(f"print({number})")

    results = await asyncio.gather(*map(one, range(100)))
    assert [result.stdout for result in results] == [f"{number}\n" for number in range(100)]
    await until(lambda: children() == IDLE)
    assert psutil.Process().num_fds() == before
    sandbox.close()
    assert (children(), groups()) == (0, [])


async def test_queued_executions_hold_neither_files_nor_the_loop() -> None:
    few, many = psutil.Process().num_fds() + 400, resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, many[1]))
    try:
        results = await asyncio.gather(*(run(f"print({number})") for number in range(600)))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, many)
    assert [result.stdout for result in results] == [f"{number}\n" for number in range(600)]


def caught(pid: int) -> set[int]:
    """The signals for which a process has a handler; none, when it has ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        status = Path(f"/proc/{pid}/status").read_text()
        mask = int(status.partition("SigCgt:")[2].split()[0], 16)
        return {number for number in range(1, 65) if mask & 1 << number - 1}
    return set()


async def test_keepers_have_no_reachable_signal_handlers(
    sandbox: Sandbox,
) -> None:
    sandbox.close()
    await works()
    await until(lambda: children() == IDLE)
    assert not any(signal.SIGINT in caught(process.pid) for process in processes())
    result = await run(
        "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    )
    assert result.stdout == "True\n"


async def test_a_cancelled_execution_is_ended() -> None:
    await works()
    await until(lambda: children() == IDLE)
    task = asyncio.create_task(run("import time; time.sleep(60)", limits=Limits(wall=60)))
    await until(lambda: children() > IDLE)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: children() == IDLE)


async def test_a_dead_sandbox_server_is_replaced_for_the_next_run() -> None:
    sandbox = Sandbox(ForkServer(), Cgroups.detect())
    assert (await sandbox.execute(ExecRequest(b"print(1)"))).status is Status.OK
    task = asyncio.create_task(sandbox.execute(ExecRequest(b"import time; time.sleep(60)")))
    server = sandbox.backend._process  # type: ignore[attr-defined]
    await until(lambda: len(psutil.Process(server.pid).children(recursive=True)) == 4)
    server.kill()
    assert (await task).status is Status.UNAVAILABLE
    assert (await sandbox.execute(ExecRequest(b"print(1)"))).stdout == "1\n"
    sandbox.close()


async def test_spares_of_a_dead_server_are_dropped_after_its_restart() -> None:
    sandbox = Sandbox(ForkServer(), Cgroups.detect())
    await sandbox.execute(ExecRequest(b""))  # leaves two spares
    server = sandbox.backend._process  # type: ignore[attr-defined]
    server.kill()
    server.wait()
    # takes no spare, but starts a server
    assert (await sandbox.execute(ExecRequest(b"", modules=("json",)))).status is Status.OK
    assert (await sandbox.execute(ExecRequest(b"print(1)"))).stdout == "1\n"
    sandbox.close()


async def test_executions_waiting_at_the_servers_end_get_no_program() -> None:
    sandbox = Sandbox(ForkServer(), Cgroups.detect())
    await sandbox.execute(ExecRequest(b""))
    server = sandbox.backend._process  # type: ignore[attr-defined]
    server.kill()
    server.wait()
    assert (
        await sandbox.execute(ExecRequest(b"print(1)", kept=True))
    ).stdout == "1\n"  # by a new server
    assert (await sandbox.execute(ExecRequest(b"print(1)"))).stdout == "1\n"
    sandbox.close()


def test_limits_are_above_zero() -> None:
    with pytest.raises(ValueError, match="wall: got 0"):
        Limits(wall=0)
