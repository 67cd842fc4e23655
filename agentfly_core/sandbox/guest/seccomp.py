"""The seccomp filter that blocks dangerous system calls of model-written code (see seccomp(2)).

The filter forbids namespaces, mounts, tracing, bpf, io_uring, userfaultfd and keyrings. It also
forbids kinds of memory without a resource limit (System V, memfd, aio), and changes to the limits
of other processes. Of all sockets, only socket pairs are allowed. With `network`, a program may
also open TCP sockets.
"""

import ctypes
import errno
import platform
import struct
import tomllib
from pathlib import Path

from agentfly_core.sandbox.guest import kernel

# linux/bpf_common.h
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN, _AND = (0x20, 0x15, 0x35, 0x45, 0x06, 0x54)
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000  # linux/seccomp.h
_NUMBER, _MACHINE, _FIRST_ARGUMENT, _SECOND_ARGUMENT, _THIRD_ARGUMENT = 0, 4, 16, 24, 32
_MODE_FILTER, _PR_SET_SECCOMP = 2, 22
_AF_UNIX, _AF_INET, _AF_INET6, _IPPROTO_TCP = 1, 2, 10, 6  # linux/socket.h, linux/in.h
_SOCK_STREAM, _SOCK_SEQPACKET, _SOCK_TYPE_MASK = 1, 5, 0xF  # linux/net.h
_X32 = 0x40000000
_NAMESPACES = 0x7E020080  # every CLONE_NEW... flag, also for time and cgroups

_MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_DENIED: dict[str, list[int]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())


def program(network: bool = False) -> bytes:
    """Return the seccomp filter that blocks dangerous system calls of model-written code.

    With `network`, the filter allows TCP sockets. The result is an array of `struct sock_filter`
    for this machine's processor. Each element has 8 bytes.
    """
    machine = platform.machine()
    not_permitted, not_there = _ERRNO | errno.EPERM, _ERRNO | errno.ENOSYS
    steps = [_step(_LOAD, _MACHINE), _step(_EQUAL, _MACHINES[machine], 1, 0), _step(_RETURN, _KILL)]
    steps += [_step(_LOAD, _NUMBER), *_when(_AT_LEAST, _X32, not_permitted)]
    place = list(_MACHINES).index(machine)
    for number in (numbers[place] for numbers in _DENIED.values() if len(numbers) > place):
        steps += _when(_EQUAL, number, not_permitted)
    steps += _tcp() if network else _when(_EQUAL, kernel.number("socket"), not_permitted)
    # refused, because the flags of clone3 are in memory, which a filter cannot read; the C library
    # then uses clone
    steps += _when(_EQUAL, kernel.number("clone3"), not_there)
    # Socket pairs of the types stream and seqpacket are allowed, because they stay connected. A
    # socket of a datagram (or raw) pair could be connected to a socket file.
    steps += [_step(_EQUAL, kernel.number("socketpair"), 0, 8), _step(_LOAD, _FIRST_ARGUMENT)]
    steps += [_step(_EQUAL, _AF_UNIX, 0, 4), _step(_LOAD, _SECOND_ARGUMENT)]
    steps += [_step(_AND, _SOCK_TYPE_MASK), _step(_EQUAL, _SOCK_STREAM, 2, 0)]
    steps += [_step(_EQUAL, _SOCK_SEQPACKET, 1, 0), _step(_RETURN, not_permitted)]
    steps += [_step(_RETURN, _ALLOW)]
    # a process may set only its own limits: the init process has the same user, and must still be
    # able to report
    steps += [_step(_EQUAL, kernel.number("prlimit64"), 0, 4), _step(_LOAD, _FIRST_ARGUMENT)]
    steps += [_step(_EQUAL, 0, 0, 1), _step(_RETURN, _ALLOW), _step(_RETURN, not_permitted)]
    steps += [_step(_EQUAL, kernel.number("clone"), 0, 3), _step(_LOAD, _FIRST_ARGUMENT)]
    steps += [*_when(_ANY_BIT, _NAMESPACES, not_permitted), _step(_RETURN, _ALLOW)]
    return b"".join(steps)


def _tcp() -> list[bytes]:
    """Return filter instructions that allow TCP sockets and forbid all other sockets."""
    denied = _step(_RETURN, _ERRNO | errno.EPERM)
    # other stream protocols (MPTCP, SMC) are forbidden, because they would expose much more kernel
    # code
    return [
        *(_step(_EQUAL, kernel.number("socket"), 0, 11), _step(_LOAD, _FIRST_ARGUMENT)),
        *(_step(_EQUAL, _AF_INET, 1, 0), _step(_EQUAL, _AF_INET6, 0, 6)),
        *(_step(_LOAD, _SECOND_ARGUMENT), _step(_AND, _SOCK_TYPE_MASK)),
        *(_step(_EQUAL, _SOCK_STREAM, 0, 3), _step(_LOAD, _THIRD_ARGUMENT)),
        *(_step(_EQUAL, 0, 2, 0), _step(_EQUAL, _IPPROTO_TCP, 1, 0)),
        *(denied, _step(_RETURN, _ALLOW)),
    ]


def apply(network: bool) -> None:
    """Block dangerous system calls (see `program`) in this process and in its later children.

    The process must set `no_new_privs` before this call.
    """
    code = program(network)
    buffer = ctypes.create_string_buffer(code, len(code))
    head = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))
    pointer = ctypes.create_string_buffer(head, len(head))
    kernel.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.addressof(pointer))


def _step(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("HBBI", code, yes, no, value)


def _when(test: int, value: int, answer: int) -> list[bytes]:
    return [_step(test, value, 0, 1), _step(_RETURN, answer)]
