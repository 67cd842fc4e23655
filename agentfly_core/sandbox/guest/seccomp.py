"""The seccomp filter: forbidden system calls of model-written code, see seccomp(2).

Namespaces, mounts, tracing, limits of other processes, bpf, io_uring, userfaultfd, keyrings,
uncounted memory (System V, memfd, aio) and sockets other than pairs are not permitted.
"""

import ctypes
import errno
import os
import platform
import struct

from agentfly_core.sandbox.guest import kernel

# linux/bpf_common.h
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN, _AND = (0x20, 0x15, 0x35, 0x45, 0x06, 0x54)
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000  # linux/seccomp.h
_NUMBER, _MACHINE, _FIRST_ARGUMENT, _SECOND_ARGUMENT = 0, 4, 16, 24
_MODE_FILTER, _PR_SET_SECCOMP = 2, 22
_AF_UNIX, _SOCK_STREAM, _SOCK_SEQPACKET, _SOCK_TYPE_MASK = 1, 1, 5, 0xF  # linux/net.h
_X32 = 0x40000000
_NAMESPACES = 0x7E020080  # every CLONE_NEW... flag, of time and cgroups too

_MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_DENIED_EVERYWHERE = (
    *(425, 426, 427),  # io_uring_setup, io_uring_enter, io_uring_register
    # open_tree ... fspick, mount_setattr, open_tree_attr
    *(428, 429, 430, 431, 432, 433, 442, 467),
    *(438, 440, 443, 447),  # pidfd_getfd, process_madvise, quotactl_fd, memfd_secret
)
_DENIED = {
    "x86_64": (
        *(41, 101, 310, 311, 312),  # socket, ptrace, process_vm_readv, process_vm_writev, kcmp
        *(165, 166, 155, 161, 272, 308),  # mount, umount2, pivot_root, chroot, unshare, setns
        # add_key, request_key, keyctl, bpf, perf_event_open, userfaultfd
        *(248, 249, 250, 321, 298, 323),
        # kexec_load, kexec_file_load, init_, finit_, delete_module, reboot
        *(246, 320, 175, 313, 176, 169),
        # swapon, swapoff, acct, quotactl, syslog, personality, vhangup
        *(167, 168, 163, 179, 103, 135, 153),
        # name_to_handle_at, open_by_handle_at, fanotify_init, lookup_dcookie
        *(303, 304, 300, 212),
        # settimeofday, clock_settime, clock_adjtime, adjtimex, set...name
        *(164, 227, 305, 159, 170, 171),
        *(279, 256, 237, 238),  # move_pages, migrate_pages, mbind, set_mempolicy
        *(319, 29, 68, 64, 240),  # memfd_create, shmget, msgget, semget, mq_open
        *(172, 173, 154, 134, 136, 206),  # iopl, ioperm, modify_ldt, uselib, ustat, io_setup
    ),
    "aarch64": (
        *(198, 117, 270, 271, 272),
        *(40, 39, 41, 51, 97, 268),
        *(217, 218, 219, 280, 241, 282),
        *(104, 294, 105, 273, 106, 142),
        *(224, 225, 89, 60, 116, 92, 58),
        *(264, 265, 262, 18),
        *(170, 112, 266, 171, 161, 162),
        *(239, 238, 235, 237),
        *(279, 194, 186, 190, 180, 0),
    ),
}
_SOCKETPAIR = {"x86_64": 53, "aarch64": 199}
_PRLIMIT = {"x86_64": 302, "aarch64": 261}
_CLONE3 = 435


def program() -> bytes:
    """The filter for this machine: an array of `struct sock_filter`, 8 bytes each."""
    machine = platform.machine()
    not_permitted, not_there = _ERRNO | errno.EPERM, _ERRNO | errno.ENOSYS
    steps = [_step(_LOAD, _MACHINE), _step(_EQUAL, _MACHINES[machine], 1, 0), _step(_RETURN, _KILL)]
    steps += [_step(_LOAD, _NUMBER), *_when(_AT_LEAST, _X32, not_permitted)]
    for denied in (*_DENIED[machine], *_DENIED_EVERYWHERE):
        steps += _when(_EQUAL, denied, not_permitted)
    # its flags are in memory; the C library falls back to clone
    steps += _when(_EQUAL, _CLONE3, not_there)
    # halves of stream and seqpacket pairs stay connected; a half of a datagram (or raw) pair could
    # be connected to a socket file
    steps += [_step(_EQUAL, _SOCKETPAIR[machine], 0, 8), _step(_LOAD, _FIRST_ARGUMENT)]
    steps += [_step(_EQUAL, _AF_UNIX, 0, 4), _step(_LOAD, _SECOND_ARGUMENT)]
    steps += [_step(_AND, _SOCK_TYPE_MASK), _step(_EQUAL, _SOCK_STREAM, 2, 0)]
    steps += [_step(_EQUAL, _SOCK_SEQPACKET, 1, 0), _step(_RETURN, not_permitted)]
    steps += [_step(_RETURN, _ALLOW)]
    # only of itself: the init process has the same user, and must be able to report
    steps += [_step(_EQUAL, _PRLIMIT[machine], 0, 4), _step(_LOAD, _FIRST_ARGUMENT)]
    steps += [_step(_EQUAL, 0, 0, 1), _step(_RETURN, _ALLOW), _step(_RETURN, not_permitted)]
    steps += [_step(_EQUAL, kernel.number("clone"), 0, 3), _step(_LOAD, _FIRST_ARGUMENT)]
    steps += [*_when(_ANY_BIT, _NAMESPACES, not_permitted), _step(_RETURN, _ALLOW)]
    return b"".join(steps)


def apply() -> None:
    """Apply the filter to this process and its children; needs `no_new_privs`."""
    code = program()
    buffer = ctypes.create_string_buffer(code, len(code))
    head = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))
    pointer = ctypes.create_string_buffer(head, len(head))
    if ctypes.PyDLL(None, use_errno=True).prctl(_PR_SET_SECCOMP, _MODE_FILTER, pointer, 0, 0):
        raise OSError(ctypes.get_errno(), f"seccomp: {os.strerror(ctypes.get_errno())}")


def _step(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("HBBI", code, yes, no, value)


def _when(test: int, value: int, answer: int) -> list[bytes]:
    return [_step(test, value, 0, 1), _step(_RETURN, answer)]
