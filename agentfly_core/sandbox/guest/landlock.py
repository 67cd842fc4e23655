"""Restrict file access with Landlock (see landlock(7), Linux 5.13 or later), in addition to the
sandbox's own mount namespace.
"""

import ctypes
import os
import struct
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from agentfly_core.sandbox.guest import kernel

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_PATH_BENEATH, _VERSION = 1, 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_BY_VERSION = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}  # number of file access rights by version
_READ = _EXECUTE | _READ_FILE | _READ_DIR


def version() -> int:
    """Return the Landlock version of the kernel, or 0 if the kernel lacks Landlock."""
    with suppress(OSError):
        return kernel.syscall(_CREATE, None, 0, _VERSION)
    return 0


def apply(writable: Sequence[Path], network: bool) -> None:
    """Restrict this process: it may write only in the folders `writable` and to devices.

    The process must set `no_new_privs` before this call. With Landlock version 4 or later, TCP is
    also blocked if `network` is False. With version 6 or later, the process can no longer send
    signals to processes outside the sandbox, or connect to abstract sockets outside the sandbox.
    If the kernel lacks Landlock, do nothing.
    """
    if not (abi := version()):
        return
    every = (1 << _BY_VERSION.get(abi, 16)) - 1
    tcp = 3 if abi >= 4 and not network else 0
    rules = struct.pack("QQQ", every, tcp, 3 if abi >= 6 else 0)
    ruleset = kernel.syscall(_CREATE, ctypes.create_string_buffer(rules, len(rules)), len(rules), 0)
    for path, rights in (
        (Path("/"), _READ),
        (Path("/dev"), _READ | _WRITE_FILE),
        *((path, every) for path in writable),
    ):
        folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rule = struct.pack("=Qi", rights, folder)
        address = ctypes.create_string_buffer(rule, len(rule))
        kernel.syscall(_ADD, ruleset, _PATH_BENEATH, address, 0)
        os.close(folder)
    kernel.syscall(_RESTRICT, ruleset, 0)
    os.close(ruleset)
