"""Programs that run one after another in one interpreter of the sandbox."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psutil
import pytest

from agentfly_core.sandbox.attacks import ATTACKS, Attack
from agentfly_core.sandbox.backends import Unavailable
from agentfly_core.sandbox.guest.protocol import MIB, ExecResult, Limits, Status
from agentfly_core.sandbox.preflight import chosen
from agentfly_core.sandbox.running import Session, run, session
from agentfly_core.sandbox.sandbox import Sandbox
from agentfly_core.sandbox.self_test import attacked
from agentfly_core.system.service import SANDBOX
from agentfly_core.system.supervisor import die_with_parent
from tests.support.sandbox_processes import IDLE, children, groups, processes, until
from tests.support.waiting import LIMIT

pytestmark = pytest.mark.service
FOR_PROGRAMS = {"hand out a link for a result"}  # sessions return only output
APPLICABLE = [attack for attack in ATTACKS if attack.name not in FOR_PROGRAMS]
LINE = """
import os, socket
def is_line(n):
    try: return os.readlink(f"/proc/self/fd/{n}").startswith("socket:")
    except OSError: return False
(line,) = [n for n in range(3, 256) if is_line(n)]
"""

OWNER = """
import asyncio, threading
from agentfly_core.sandbox.running import session

CODE = (
    "import os, threading; child = os.fork(); child or threading.Event().wait(); "
    "print(os.getpid(), child)"
)

async def main():
    async with session() as it:
        print((await it.run(CODE)).stdout, flush=True)
        threading.Event().wait()

asyncio.run(main())
"""


@pytest.fixture(scope="module", autouse=True)
def sandbox() -> Iterator[Sandbox]:
    """The one of this machine, ended with this module."""
    try:
        here = chosen()
    except Unavailable as error:
        pytest.skip(str(error))
    yield here
    here.close()


@pytest.fixture
async def it() -> AsyncIterator[Session]:
    async with session(Limits(wall=LIMIT)) as opened:
        yield opened


async def output_of(it: Session, code: str) -> str:
    """Output of code that must succeed and leave the session alive."""
    result = await it.run(code)
    assert (result.status, it.alive) == (Status.OK, True), result
    return result.stdout


async def test_a_call_sees_the_state_of_earlier_calls(it: Session) -> None:
    await it.run("import math\nnumbers = [3, 4]\ndef norm(): return math.hypot(*numbers)")
    await it.run("open('notes.txt', 'w').write('six')")
    assert (
        await output_of(it, "numbers = [6, 8]\nprint(norm(), open('notes.txt').read())")
        == "10.0 six\n"
    )


async def test_each_call_has_a_result_of_its_own(it: Session) -> None:
    first, second = (
        await it.run("print('one')"),
        await it.run("import sys; print('two', file=sys.stderr)"),
    )
    assert (first.stdout, first.stderr) == ("one\n", "")
    assert (second.stdout, second.stderr, second.exit_code) == ("", "two\n", 0)
    assert (first.duration > 0, first.peak_rss > MIB, first.backend) == (True, True, second.backend)


async def test_calls_at_the_same_time_run_one_after_another(it: Session) -> None:
    await it.run("seen = []")
    await asyncio.gather(*(it.run(f"seen.append({number})") for number in range(8)))
    assert await output_of(it, "print(seen)") == "[0, 1, 2, 3, 4, 5, 6, 7]\n"


async def test_a_call_that_raises_keeps_its_output_and_state(it: Session) -> None:
    await it.run("def half(x):\n    return 1 / x")
    failed = await it.run("print('before')\nx = 5\nhalf(0)\nx = 6")
    assert (failed.status, failed.exit_code, failed.stdout) == (Status.ERROR, 1, "before\n")
    lines = [
        line.strip() for line in failed.stderr.splitlines() if "~" not in line and "^" not in line
    ]
    assert lines == [
        "Traceback (most recent call last):",
        'File "<call 2>", line 3, in <module>',
        "half(0)",
        'File "<call 1>", line 2, in half',
        "return 1 / x",
        "ZeroDivisionError: division by zero",
    ]
    assert await output_of(it, "print(x)") == "5\n"


@pytest.mark.parametrize(
    ("code", "status", "exit_code"),
    [
        ("raise SystemExit(3)", Status.ERROR, 3),
        ("import sys; sys.exit()", Status.OK, 0),
        ("print(", Status.ERROR, 1),
        ("\0", Status.ERROR, 1),
        ("\udc80", Status.ERROR, 1),
        ("def f(): f()\nf()", Status.ERROR, 1),
        ("input()", Status.ERROR, 1),
        ("bytearray(10 << 30)", Status.OOM, 1),
        ("open('x', 'wb').write(bytes(100 << 20))", Status.DISK_LIMIT, 1),
        ("import sys; sys.stdout = sys.stderr = None", Status.OK, 0),
        ("import os; os.close(1); os.close(2)", Status.OK, 0),
        ("import os\nif os.fork() == 0: raise SystemExit(9)\nos.wait()", Status.OK, 0),
    ],
)
async def test_a_call_that_ends_by_itself_leaves_the_rest(
    it: Session, code: str, status: Status, exit_code: int
) -> None:
    await it.run("def kept(): open('kept', 'w').write('yes')")
    result = await it.run(code)
    assert (result.status, result.exit_code, it.alive) == (status, exit_code, True), result
    assert (
        await it.run("import os; os.path.exists('x') and os.remove('x'); kept()")
    ).status is Status.OK


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("while True: pass", Status.TIMEOUT),
        ("while True: print('x' * 1000)", Status.OUTPUT_LIMIT),
        ("import os; os._exit(0)", Status.OK),
        ("import os; os._exit(3)", Status.ERROR),
        ("import os; os.kill(os.getpid(), 9)", Status.KILLED),
    ],
)
async def test_a_crashed_interpreter_is_reported_and_restarted(code: str, status: Status) -> None:
    async with session(Limits(wall=0.5)) as it:
        await it.run("x = 1\nopen('notes.txt', 'w').close()")
        assert ((await it.run(f"print('before', flush=True)\n{code}")).status, it.alive) == (
            status,
            False,
        )
        assert (
            await output_of(it, "import os; print('x' in dir(), os.listdir('.'))") == "False []\n"
        )


async def test_time_and_computing_are_counted_for_each_call() -> None:
    busy = "import time\nend = time.process_time() + 0.7\nwhile time.process_time() < end: pass"
    async with asyncio.timeout(LIMIT), session(Limits(wall=600, cpu=1)) as it:
        assert [(await it.run(busy)).status for _ in range(2)] == [Status.OK, Status.OK]
        assert (await it.run("while True: pass")).status is Status.TIMEOUT


async def test_an_earlier_full_disk_does_not_explain_the_next_error(
    it: Session,
) -> None:
    assert (await it.run("open('x', 'wb').write(bytes(100 << 20))")).status is Status.DISK_LIMIT
    assert (await it.run("1 / 0")).status is Status.ERROR


async def test_an_earlier_oom_does_not_explain_the_next_result() -> None:
    async with session(Limits(wall=5, memory=128 * MIB)) as it:
        await it.run(
            "import os, threading\ndef take():\n    taken = b'x' * (90 << 20)\n    "
            "threading.Event().wait()"
        )
        code = "for _ in range(2):\n    if os.fork() == 0: take()\nos.wait()"
        assert (await it.run(code)).status is Status.OOM
        assert (await it.run("print(42)")).status is Status.OK


async def test_processes_are_frozen_between_calls(it: Session) -> None:
    await it.run("import os, threading\ndef spin():\n    while True: pass")
    await it.run("threading.Thread(target=spin, daemon=True).start()")
    await it.run("if os.fork() == 0: spin()")
    await until(
        lambda: sum(process.status() == psutil.STATUS_STOPPED for process in processes()) == 2
    )
    assert await output_of(it, "print('awake')") == "awake\n"


async def test_ended_background_processes_do_not_count(it: Session) -> None:
    await it.run("import subprocess")
    for _ in range(40):
        assert (
            await output_of(it, "print(subprocess.run(['sh', '-c', 'true &']).returncode)") == "0\n"
        )


async def test_a_background_process_prints_into_the_next_call(
    it: Session,
) -> None:
    await it.run(
        "import os, time\nif os.fork() == 0:\n    while True: os.write(1, b'.'); time.sleep(0.001)"
    )
    printed = await output_of(it, "time.sleep(0.05)\nprint('mine')")
    assert printed.replace(".", "") == "mine\n"
    assert len(printed) > 6


@pytest.mark.parametrize(
    "code",
    [
        "for n in range(3): os.write(line, b'\\0')",
        "os.write(line, b'\\0')\nwhile True: pass",
        "while True: os.write(line, b'unavailable' * 100)",
        "os.write(line, b'\\0')\nimport select; select.select([line], [], []); os._exit(0)",
        "os.write(line, b'')",
        "os.close(line)",
        "socket.socket(fileno=line).shutdown(socket.SHUT_RDWR)",
        "socket.send_fds(socket.socket(fileno=os.dup(line)), [b'\\0'], [0, 1, 2, line])",
        "socket.recv_fds(socket.socket(fileno=os.dup(line)), 1, 1)",
        "if os.fork() == 0:\n    while True: socket.socket(fileno=os.dup(line)).recv(1)",
    ],
)
async def test_a_forged_answer_proves_nothing_and_breaks_nothing(code: str) -> None:
    async with session(Limits(wall=0.3)) as it:
        results = [await it.run(LINE + code), *[await it.run("print(1)") for _ in range(4)]]
        assert {result.status for result in results} <= {
            Status.OK,
            Status.ERROR,
            Status.TIMEOUT,
            Status.OUTPUT_LIMIT,
        }
        await it.close()
        assert await output_of(it, "print(42)") == "42\n"


@pytest.mark.parametrize("attack", APPLICABLE, ids=lambda attack: attack.name)
async def test_an_attack_from_a_waiting_interpreter_is_stopped(
    sandbox: Sandbox, attack: Attack
) -> None:
    (outcome,) = await attacked(sandbox, [attack], kept=True)
    assert outcome.stopped, outcome.detail


async def test_an_attack_leaves_the_session_in_order_or_ended(it: Session) -> None:
    bombs = {attack.name: attack for attack in ATTACKS}
    for name in (
        "start 300 processes",
        "end the init process, process 1",
        "leave a process behind",
    ):
        await it.run("import os\n" + bombs[name].code.replace("{{", "{").replace("}}", "}"))
    assert (await it.run("print(42)")).stdout == "42\n"


async def test_one_session_sees_nothing_of_another() -> None:
    async with session() as one, session() as other:
        await one.run("secret = 1; open('secret', 'w').close(); open('/tmp/secret', 'w').close()")
        code = (
            "import os; "
            "print('secret' in dir(), os.listdir('.'), os.listdir('/tmp'), os.getpid() in (2, 3))"
        )
        assert await output_of(other, code) == "False [] [] True\n"


async def test_ended_sessions_leave_no_trace(sandbox: Sandbox) -> None:
    async def one(number: int) -> None:
        async with session(Limits(wall=30)) as it:
            await it.run("import os, threading\nif os.fork() == 0: threading.Event().wait()")
            if number % 2:
                async with asyncio.timeout(0.01):
                    await it.run("threading.Event().wait()")

    await run("pass")
    await until(lambda: children() == IDLE)
    before = psutil.Process().num_fds()
    ends = await asyncio.gather(*map(one, range(8)), return_exceptions=True)
    assert [type(end) for end in ends] == [type(None), TimeoutError] * 4
    await until(lambda: children() == IDLE)
    assert psutil.Process().num_fds() == before
    sandbox.close()
    assert (children(), groups()) == (0, [])


async def test_a_cancelled_call_ends_the_session(it: Session) -> None:
    await it.run("x = 1")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await it.run("import threading; threading.Event().wait()")
    assert not it.alive
    assert (await it.run("x")).status is Status.ERROR


async def test_open_sessions_keep_no_program_waiting() -> None:
    async def hold(number: int, everybody: asyncio.Barrier) -> ExecResult:
        async with session() as it:
            await it.run(f"x = {number}")
            async with everybody:
                result = await run("print(42)") if number == 0 else await it.run("print(x)")
            return result

    everybody = asyncio.Barrier(40)
    async with asyncio.timeout(LIMIT):
        results = await asyncio.gather(*(hold(number, everybody) for number in range(40)))
    assert [result.stdout for result in results] == [
        "42\n",
        *(f"{number}\n" for number in range(1, 40)),
    ]


async def test_the_end_of_the_server_is_our_failure_and_not_the_codes(it: Session) -> None:
    await it.run("x = 1")
    task = asyncio.create_task(it.run("import threading; threading.Event().wait()"))
    await until(
        lambda: any(process.status() != psutil.STATUS_STOPPED for process in processes()[IDLE:])
    )
    chosen().backend._process.kill()  # type: ignore[attr-defined]
    assert ((await task).status, it.alive) == (Status.UNAVAILABLE, False)
    assert (await it.run("print(42)")).stdout == "42\n"


async def test_unsafe_code_ends_when_its_owner_is_killed(
    tmp_path: Path,
) -> None:
    environment = os.environ | {SANDBOX: "unsafe", "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", OWNER]
    owner = psutil.Popen(
        command, env=environment, stdout=subprocess.PIPE, preexec_fn=die_with_parent
    )
    pids = [int(word) for word in owner.stdout.readline().split()]
    assert [psutil.pid_exists(pid) for pid in pids] == [True, True]
    owner.kill()
    owner.communicate()
    await until(lambda: not any(psutil.pid_exists(pid) for pid in pids))
    await until(lambda: not os.listdir(tmp_path))


async def test_without_a_sandbox_a_session_is_ended_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(SANDBOX, "unsafe")
    async with session() as it:
        await it.run(
            "import os, threading\nx = 42\nif not (child := os.fork()): threading.Event().wait()"
        )
        pids = [int(word) for word in (await it.run("print(os.getpid(), child)")).stdout.split()]
        assert [psutil.pid_exists(pid) for pid in pids] == [True, True]
    await until(lambda: not any(psutil.pid_exists(pid) for pid in pids))
    chosen().close()
