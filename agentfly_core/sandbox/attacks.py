"""What hostile code would try, and whether a backend stops it. Nothing here does harm, even where nothing is stopped.

Each attack first makes sure that it is inside private namespaces, prints "inside", and then tries; "REACHED" in its
output says that it got through. Every bomb is bounded.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from agentfly_core.sandbox.limits import MIB, Limits
from agentfly_core.sandbox.result import ExecResult, Status

NAMESPACES = ("user", "pid", "mnt", "net", "ipc")
INSIDE = """
import os
for kind, outside in {outside!r}.items():
    assert os.readlink("/proc/self/ns/" + kind) != outside, "not in a private namespace: " + kind
print("inside", flush=True)
"""


@dataclass(frozen=True)
class Target:
    """Things of this machine that the attacks are after."""

    file: Path
    secret: str
    listener: socket.socket
    bystander: subprocess.Popen[bytes]
    before: frozenset[int]

    @property
    def port(self) -> int:
        """Where the listener listens, on the loopback interface."""
        port: int = self.listener.getsockname()[1]
        return port

    async def harmed(self) -> str:
        """What an attack did to this machine; empty for nothing."""
        if self.bystander.poll() is not None:
            return "a process outside was ended"
        try:
            self.listener.accept()[0].close()
        except BlockingIOError:
            for _ in range(40):
                if not (left := {process.pid for process in _descendants()} - self.before):
                    return ""
                await asyncio.sleep(0.05)
            return f"{len(left)} processes were left behind"
        return "a port outside was reached"


@dataclass(frozen=True)
class Attack:
    """One thing to try: `code` may name `{file}`, `{port}` and `{pid}` of the target.

    It is stopped when it ends with one of `ends` and "REACHED" was not printed.
    """

    name: str
    code: str
    ends: tuple[Status, ...] = (Status.OK,)
    limits: Limits = field(default_factory=lambda: Limits(wall=5.0))
    collect: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an attack: `Outcome("reach a port of this machine", True, "ok")`."""

    name: str
    stopped: bool
    detail: str


Runs = Callable[[str, Limits, Sequence[str]], Awaitable[ExecResult]]


@contextmanager
def target() -> Iterator[Target]:
    """A planted file, a listening port and a process, for the block's duration."""
    secret = secrets.token_hex(16)
    with tempfile.TemporaryDirectory(prefix="agentfly-sandbox-") as folder, socket.socket() as listener:
        Path(folder).chmod(0o755)
        file = Path(folder) / "secret.txt"
        file.write_text(secret)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.setblocking(False)
        bystander = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
        try:
            yield Target(file, secret, listener, bystander, frozenset(process.pid for process in _descendants()))
        finally:
            bystander.kill()
            bystander.wait()


async def tried(attack: Attack, runs: Runs, on: Target) -> Outcome:
    """Run an attack, and see what came of it."""
    outside = {kind: os.readlink(f"/proc/self/ns/{kind}") for kind in NAMESPACES}
    code = INSIDE.format(outside=outside) + attack.code.format(file=on.file, port=on.port, pid=on.bystander.pid)
    result = await runs(code, attack.limits, attack.collect)
    return Outcome(attack.name, *await _judged(attack, result, on))


async def _judged(attack: Attack, result: ExecResult, on: Target) -> tuple[bool, str]:
    last = (result.stderr.strip().splitlines() or [""])[-1]
    if not result.stdout.startswith("inside\n"):
        return False, f"not tried: {result.status}: {last}"
    if "REACHED" in result.stdout or on.secret in result.stdout or result.files:
        return False, result.stdout.partition("REACHED")[2].strip()[:100] or "got through"
    if result.status not in attack.ends:
        return False, f"ended as {result.status}, expected {attack.ends[0]}: {last}"
    return (False, harm) if (harm := await on.harmed()) else (True, result.status)


def _descendants() -> list[psutil.Process]:
    children: list[psutil.Process] = psutil.Process().children(recursive=True)
    return children


READ = Attack(
    "read a file of this machine",
    """
for path in ("{file}", "/proc/1/root{file}", "/proc/self/root/../{file}", "/etc/shadow", "/root/.bashrc"):
    try:
        print("REACHED", open(path).read())
    except OSError:
        pass
""",
)
CONNECT = Attack(
    "reach a port of this machine",
    """
import socket
try:
    socket.create_connection(("127.0.0.1", {port}), timeout=1)
    print("REACHED the port")
except OSError:
    pass
""",
)
FORK = Attack(
    "start 300 processes",
    """
import time
started = 0
for _ in range(300):
    try:
        if os.fork() == 0:
            time.sleep(1)
            os._exit(0)
    except OSError:
        break
    started += 1
if started >= 32:
    print("REACHED", started)
""",
)
KILL = Attack(
    "end a process of this machine",
    """
for pid in ({pid}, os.getppid()):
    try:
        os.kill(pid, 9)
        print("REACHED" if pid != 1 else "")
    except OSError:
        pass
""",
)
PROBES = (READ, CONNECT, FORK, KILL)
ATTACKS = (
    *PROBES,
    Attack(
        "end the keeper, process 1",
        """
for number in (2, 9, 15):
    try:
        os.kill(1, number)
    except OSError:
        pass
""",
    ),
    Attack(
        "take 1 GB of memory with a limit of 128 MB",
        "taken = [bytearray(b'x' * (16 << 20)) for _ in range(64)]; print('REACHED')",
        (Status.OOM,),
        Limits(wall=5.0, memory=128 * MIB),
    ),
    Attack(
        "take it with eight processes",
        """
import time
for _ in range(8):
    if os.fork() == 0:
        taken = bytearray(64 << 20)
        for page in range(0, 64 << 20, 4096):
            taken[page] = 1
        time.sleep(2)
        os._exit(0)
for _ in range(8):
    os.wait()
""",
        (Status.OOM,),
        Limits(wall=5.0, memory=128 * MIB),
    ),
    Attack(
        "write 64 files of 8 MB",
        "for n in range(64): open(str(n), 'wb').write(bytes(8 << 20))\nprint('REACHED')",
        (Status.DISK_LIMIT,),
    ),
    Attack(
        "write them to /dev/shm and /tmp",
        "for n in range(64): open(f'/dev/shm/{{n}}' if n % 2 else f'/tmp/{{n}}', 'wb').write(bytes(8 << 20))\n"
        "print('REACHED')",
        (Status.DISK_LIMIT,),
    ),
    Attack(
        "create 10,000 files",
        "for n in range(10000): open(str(n), 'w').close()\nprint('REACHED')",
        (Status.DISK_LIMIT,),
    ),
    Attack("write 1 GB of output", "for _ in range(1 << 10): os.write(1, bytes(1 << 20))", (Status.OUTPUT_LIMIT,)),
    Attack("run forever", "while True: pass", (Status.TIMEOUT,), Limits(wall=0.5)),
    Attack("sleep forever", "import signal; signal.pause()", (Status.TIMEOUT,), Limits(wall=0.5)),
    Attack(
        "leave a process behind",
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        import time; time.sleep(60)",
    ),
    Attack(
        "see other processes",
        "seen = [name for name in os.listdir('/proc') if name.isdigit()]\nif len(seen) > 2: print('REACHED', seen)",
    ),
    Attack(
        "look into the keeper's memory",
        """
import ctypes
for name in ("mem", "environ", "maps", "root"):
    try:
        os.close(os.open("/proc/1/" + name, os.O_RDONLY))
        print("REACHED", name)
    except OSError:
        pass
if ctypes.CDLL(None).ptrace(16, 1, 0, 0) == 0:
    print("REACHED ptrace")
""",
    ),
    Attack(
        "make namespaces and mounts",
        """
import ctypes
libc = ctypes.CDLL(None)
for flag in (0x10000000, 0x00020000, 0x40000000):
    if libc.unshare(flag) == 0:
        print("REACHED unshare", flag)
if libc.mount(b"none", b"/tmp", b"tmpfs", 0, None) == 0 or libc.umount2(b"/proc", 2) == 0:
    print("REACHED mount")
""",
    ),
    Attack(
        "gain privileges",
        """
import ctypes, re
status = open("/proc/self/status").read()
if int(re.search("CapEff:\\\\s*(\\\\w+)", status)[1], 16) or "NoNewPrivs:\\t1" not in status or os.getuid() == 0:
    print("REACHED", status)
if ctypes.CDLL(None).setuid(0) == 0:
    print("REACHED root")
""",
    ),
    Attack(
        "change the system's files",
        """
for folder in ("/", "/usr/bin", "/usr/lib", "/etc", os.path.dirname(os.__file__)):
    try:
        open(os.path.join(folder, "x"), "w")
        print("REACHED", folder)
    except OSError:
        pass
""",
    ),
    Attack(
        "hand out a link for a result",
        "os.symlink('/etc/passwd', 'link'); os.mkfifo('pipe'); os.symlink('/etc', 'folder')\n"
        "os.link('/sandbox/main.py', 'second')",
        collect=("link", "pipe", "folder/passwd", "second"),
    ),
)
