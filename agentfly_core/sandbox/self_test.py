"""The self-test of a sandbox. It runs attacks, and checks whether they harmed this machine."""

import asyncio
import os
import secrets
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from agentfly_core.sandbox.attacks import INSIDE, NAMESPACES, Attack
from agentfly_core.sandbox.guest.protocol import ExecRequest
from agentfly_core.sandbox.sandbox import Sandbox


@dataclass(frozen=True)
class Target:
    """Targets on this machine that the attacks try to reach: a file, a port and a process."""

    file: Path
    secret: str
    listener: socket.socket
    bystander: subprocess.Popen[bytes]

    async def harmed(self) -> str:
        """Describe the harm that an attack did to this machine. Return "" if it did no harm."""
        if self.bystander.poll() is not None:
            return "a process outside the sandbox was killed"
        try:
            self.listener.accept()[0].close()
        except BlockingIOError:
            # the kernel needs a moment to end the processes of a namespace
            for _ in range(40):
                if not (left := _left_behind()):
                    return ""
                await asyncio.sleep(0.05)
            return f"{left} processes were left behind"
        return "a port outside the sandbox was reached"


@dataclass(frozen=True, slots=True)
class AttackResult:
    """The outcome of an attack: `AttackResult("reach a port of this machine", stopped=True,
    detail="ok")`.

    `stopped` is whether the sandbox stopped the attack.
    """

    name: str
    stopped: bool
    detail: str


@contextmanager
def target() -> Iterator[Target]:
    """Create the targets of attacks: a file with a secret, a listening port and a process.

    The targets exist during the `with` block.
    """
    secret = secrets.token_hex(16)
    with (
        tempfile.TemporaryDirectory(prefix="agentfly-sandbox-") as folder,
        socket.socket() as listener,
    ):
        Path(folder).chmod(0o755)
        file = Path(folder) / "secret.txt"
        file.write_text(secret)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.setblocking(False)
        bystander = subprocess.Popen(  # it ends when this process closes its stdin
            [sys.executable, "-S", "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
        )
        try:
            yield Target(file, secret, listener, bystander)
        finally:
            bystander.kill()
            bystander.communicate()


async def attacked(
    sandbox: Sandbox, attacks: Sequence[Attack], kept: bool = False
) -> list[AttackResult]:
    """Run attacks on a sandbox one after another, and return their outcomes.

    With `kept`, each attack runs in the kind of interpreter that stays alive for further requests.
    """
    await sandbox.execute(ExecRequest(b""))
    outcomes: list[AttackResult] = []
    with target() as on:
        for attack in attacks:
            outside = {kind: os.readlink(f"/proc/self/ns/{kind}") for kind in NAMESPACES}
            port = on.listener.getsockname()[1]
            code = INSIDE.format(outside=outside)
            code += attack.code.format(file=on.file, port=port, pid=on.bystander.pid)
            request = ExecRequest(code.encode(), {}, b"", attack.collect, attack.limits, kept)
            result = await sandbox.execute(request)
            last = (result.stderr.strip().splitlines() or [""])[-1]
            if not result.stdout.startswith("inside\n"):
                wrong = f"not tried: {result.status}: {last}"
            elif "REACHED" in result.stdout or on.secret in result.stdout or result.files:
                wrong = result.stdout.partition("REACHED")[2].strip()[:100] or "got through"
            elif result.status not in attack.ends:
                wrong = f"ended as {result.status}, expected {attack.ends[0]}: {last}"
            else:
                wrong = await on.harmed()
            outcomes.append(AttackResult(attack.name, not wrong, wrong or result.status))
    return outcomes


def _left_behind() -> int:
    """Return the number of processes that attacks left running in the sandbox's process namespaces.

    The first process of each namespace is not counted.
    """
    survivors = 0
    for process in psutil.Process().children(recursive=True):
        with suppress(FileNotFoundError, ProcessLookupError):
            status = Path(f"/proc/{process.pid}/status").read_text()
            numbers = status.partition("NSpid:")[2].partition("\n")[0].split()
            survivors += len(numbers) > 1 and numbers[-1] != "1"
    return survivors
