"""A second node for tests: an SSH server on 127.0.0.2 that the `ssh` on PATH can reach."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentfly_core.system.supervisor import die_with_parent

HERE, THERE = "localhost", "127.0.0.2"
SERVER = """
ListenAddress {there}:{port}
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
"""
CLIENT = """
Host {there}
Port {port}
IdentityFile {folder}/user
StrictHostKeyChecking no
UserKnownHostsFile /dev/null
LogLevel ERROR
"""


@contextmanager
def second_node(folder: Path) -> Iterator[str]:
    """The hostfile of this machine and the second node, with one slot each; skips the test on a
    machine without an SSH server, with the reason.
    """
    sshd = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    if not (sshd and shutil.which("ssh") and shutil.which("ssh-keygen")):
        pytest.skip("a second node needs ssh and sshd: apt install openssh-client openssh-server")
    written = {"there": THERE, "port": _free_port(), "folder": folder}
    (folder / "sshd_config").write_text(SERVER.format(**written))
    (folder / "ssh_config").write_text(CLIENT.format(**written))
    for key in ("host", "user"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key], check=True
        )
    checked = subprocess.run(
        [sshd, "-t", "-f", folder / "sshd_config"], capture_output=True, text=True, check=False
    )
    if checked.returncode:
        pytest.skip(f"sshd cannot run here: {checked.stderr.strip()}")
    command = [sshd, "-D", "-e", "-f", folder / "sshd_config"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, preexec_fn=die_with_parent)
    with server, pytest.MonkeyPatch.context() as patch:
        assert server.stderr and b"listening" in server.stderr.readline()
        patch.setenv("PATH", f"{_client(folder)}:{os.environ['PATH']}")
        try:
            yield _hostfile(folder)
        finally:
            server.terminate()


def _free_port() -> int:
    try:
        with socket.create_server((THERE, 0)) as probe:
            return int(probe.getsockname()[1])
    except OSError as error:
        pytest.skip(f"{THERE} is no address of this machine: {error}")


def _client(folder: Path) -> Path:
    """A folder with an `ssh` that reads our configuration."""
    (folder / "bin").mkdir()
    program = folder / "bin" / "ssh"
    program.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/ssh_config "$@"\n')
    program.chmod(0o700)
    return program.parent


def _hostfile(folder: Path) -> str:
    (folder / "hostfile").write_text(f"{HERE} slots=1\n{THERE} slots=1\n")
    return str(folder / "hostfile")
