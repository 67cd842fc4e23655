"""Attacks on the sandbox. They are bounded, and do no harm even where nothing stops them.

Each attack checks that it is in private namespaces, prints "inside", then tries. It prints
"REACHED" if nothing stops it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from agentfly_core.sandbox.guest.protocol import MIB, Limits, Status

NAMESPACES = ("user", "pid", "mnt", "net", "ipc")
INSIDE = """
import os
for kind, outside in {outside!r}.items():
    assert os.readlink("/proc/self/ns/" + kind) != outside, "not in a private namespace: " + kind
print("inside", flush=True)
"""


@dataclass(frozen=True)
class Attack:
    """`code` may name `{file}`, `{port}` and `{pid}` of the target.

    It was stopped if it ends with one of `ends` without printing "REACHED".
    """

    name: str
    code: str
    ends: tuple[Status, ...] = (Status.OK,)
    limits: Limits = field(default_factory=lambda: Limits(wall=5.0))
    collect: tuple[str, ...] = ()


READ = Attack(
    "read a file of this machine",
    """
others = "/proc/1/root{file}", "/proc/self/root/../{file}", "/etc/shadow", "/root/.bashrc"
for path in ("{file}", *others):
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
POINT = Attack(
    "point a half of a socket pair elsewhere",
    """
import ctypes, itertools, socket
libc, there = ctypes.CDLL(None), "/tmp/there"

def pair(family, kind):
    try:
        return socket.socketpair(family, kind)
    except (OSError, ValueError):
        return None

def arrives(attempt, near, far):
    for half in (near, far):
        # with no address a datagram socket forgets its other half
        libc.connect(half.fileno(), bytes(16), 16)
    try:
        return attempt(near) != 1 or far.recv(1, socket.MSG_DONTWAIT) == b"x"
    except OSError:
        return False

ATTEMPTS = (
    lambda near: near.connect(there),
    lambda near: near.sendto(b"x", there),
    lambda near: near.sendto(b"x", socket.MSG_OOB, there),
    lambda near: near.sendmsg([b"x"], [], 0, there),
    lambda near: near.listen(),
    lambda near: near.accept(),
)
NONBLOCK, CLOEXEC = socket.SOCK_NONBLOCK, socket.SOCK_CLOEXEC
FLAGS = (0, NONBLOCK, CLOEXEC, NONBLOCK | CLOEXEC, 0x10, 1 << 30)
for kind, flags, attempt in itertools.product(range(16), FLAGS, ATTEMPTS):
    ours, others = pair(socket.AF_UNIX, kind | flags), pair(socket.AF_UNIX, kind | flags)
    if ours and others:
        others[0].bind(there)
        if arrives(attempt, ours[0], others[0]):
            print("REACHED with kind", kind)
        os.unlink(there)
for family, kind in itertools.product([0, *range(2, 50)], range(1, 7)):
    if pair(family, kind):
        print("REACHED with family", family)
if not (pair(socket.AF_UNIX, socket.SOCK_STREAM) and pair(socket.AF_UNIX, socket.SOCK_SEQPACKET)):
    print("REACHED nothing: not even a pair of its own")
""",
)
PROBES = (READ, CONNECT, FORK, KILL)
ATTACKS = (
    *PROBES,
    POINT,
    Attack(
        "end the init process, process 1",
        """
for number in range(1, 65):
    try:
        os.kill(1, number)
    except OSError:
        pass
""",
    ),
    Attack(
        "keep it from reporting",
        """
import resource
for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_AS):
    try:
        resource.prlimit(1, kind, (3, 3))
        print("REACHED", kind)
    except OSError:
        pass
""",
    ),
    Attack(
        "write into its input, which no limit counts",
        """
try:
    print("REACHED", os.write(os.open("/proc/self/fd/0", os.O_RDWR), bytes(1 << 20)))
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
        "for n in range(64): open(f'/dev/shm/{{n}}' if n % 2 else f'/tmp/{{n}}', "
        "'wb').write(bytes(8 << 20))\nprint('REACHED')",
        (Status.DISK_LIMIT,),
    ),
    Attack(
        "create 10,000 files",
        "for n in range(10000): open(str(n), 'w').close()\nprint('REACHED')",
        (Status.DISK_LIMIT,),
    ),
    Attack(
        "write 1 GB of output",
        "for _ in range(1 << 10): os.write(1, bytes(1 << 20))",
        (Status.OUTPUT_LIMIT,),
    ),
    Attack("run forever", "while True: pass", (Status.TIMEOUT,), Limits(wall=0.5)),
    Attack("sleep forever", "import signal; signal.pause()", (Status.TIMEOUT,), Limits(wall=0.5)),
    Attack(
        "leave a process behind",
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        import time; "
        "time.sleep(60)",
    ),
    Attack(
        "see other processes",
        "seen = [name for name in os.listdir('/proc') if name.isdigit()]\nif len(seen) > 2: "
        "print('REACHED', seen)",
    ),
    Attack(
        "look into the init process's memory",
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
capable = int(re.search("CapEff:\\\\s*(\\\\w+)", status)[1], 16)
if capable or "NoNewPrivs:\\t1" not in status or os.getuid() == 0:
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
