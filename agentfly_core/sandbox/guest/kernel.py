"""System calls that are missing in Python. The functions are named as in the Linux manual."""

import ctypes
import os
import platform
import signal
from pathlib import Path

NEWNS, NEWUTS, NEWIPC, NEWUSER = 0x00020000, 0x04000000, 0x08000000, 0x10000000
NEWPID, NEWNET = 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
MNT_DETACH = 2
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS = 1, 4, 38
_AT_RECURSIVE = 0x8000
_CAPABILITY_VERSION = 0x20080522

_NUMBERS = {
    "x86_64": {"clone": 56, "pivot_root": 155, "capset": 126, "mount_setattr": 442, "clone3": 435}
    | {"socket": 41, "socketpair": 53, "prlimit64": 302},
    "aarch64": {"clone": 220, "pivot_root": 41, "capset": 91, "mount_setattr": 442, "clone3": 435}
    | {"socket": 198, "socketpair": 199, "prlimit64": 261},
}
_LIBC = ctypes.PyDLL(None, use_errno=True)  # PyDLL keeps the GIL, as a fork requires


def number(name: str) -> int:
    """Return the number of a system call. Raises OSError if the processor is not supported."""
    if platform.machine() not in _NUMBERS:
        raise OSError(f"Got a {platform.machine()} processor, expected {' or '.join(_NUMBERS)}.")
    return _NUMBERS[platform.machine()][name]


def syscall(what: int, *words: int | bytes | ctypes.Array[ctypes.c_char] | None) -> int:
    """Make a system call and return its result. Raises OSError if the call fails."""
    given = [ctypes.c_long(word) if isinstance(word, int) else word for word in words]
    return _checked(int(_LIBC.syscall(ctypes.c_long(what), *given)), f"system call {what}")


def unshare(flags: int) -> None:
    _checked(_LIBC.unshare(flags), "unshare")


def map_user(inside: tuple[int, int], outside: tuple[int, int]) -> None:
    """Map one user and one group of this process's new user namespace to a user and a group of
    the parent namespace.

    Each argument is a pair (user id, group id).
    """
    # the kernel requires this before an unprivileged process writes gid_map
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{inside[0]} {outside[0]} 1")
    Path("/proc/self/gid_map").write_text(f"{inside[1]} {outside[1]} 1")


def clone(flags: int) -> int:
    """Fork like `os.fork`, but create the child in new namespaces."""
    api = ctypes.pythonapi
    # as in os.fork, because the interpreter's locks must be free in the child
    api.PyOS_BeforeFork()
    call, flags = ctypes.c_long(number("clone")), flags | signal.SIGCHLD
    pid = int(_LIBC.syscall(call, ctypes.c_long(flags), *[None] * 4))
    error = ctypes.get_errno()
    api.PyOS_AfterFork_Parent() if pid else api.PyOS_AfterFork_Child()
    if pid < 0:
        raise OSError(error, f"clone: {os.strerror(error)}")
    return pid


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """Mount a file system of type `kind` at the path `target`.

    With the flag MS_BIND, mount the path `source` at `target` instead. With the flag MS_PRIVATE,
    mount nothing: the mount at `target` becomes private, so later mounts below it do not propagate
    to or from other namespaces.
    """
    texts = [text.encode() or None for text in (source, target, kind)]
    _checked(_LIBC.mount(*texts, ctypes.c_ulong(flags), data.encode() or None), f"mount {target}")


def unmount(target: str) -> None:
    _checked(_LIBC.umount2(target.encode(), MNT_DETACH), f"umount {target}")


def set_read_only(target: str) -> None:
    """Make a mount and all mounts below it read-only. Set-uid programs and devices are disabled."""
    attributes = (ctypes.c_uint64 * 4)(MS_RDONLY | MS_NOSUID | MS_NODEV, 0, 0, 0)
    data = ctypes.create_string_buffer(bytes(attributes), 32)
    syscall(number("mount_setattr"), -100, target.encode(), _AT_RECURSIVE, data, 32)


def pivot_root(folder: str) -> None:
    """Make a mounted folder the root directory, and unmount the old root."""
    os.chdir(folder)
    syscall(number("pivot_root"), b".", b".")
    unmount(".")
    os.chdir("/")


def prctl(option: int, value: int, address: int = 0) -> None:
    words = map(ctypes.c_ulong, (value, address, 0, 0))
    _checked(_LIBC.prctl(option, *words), f"prctl {option}")


def drop_capabilities() -> None:
    header = ctypes.create_string_buffer(bytes((ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)), 8)
    syscall(number("capset"), header, ctypes.create_string_buffer(24))


def _checked(result: int, what: str) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
    return result
