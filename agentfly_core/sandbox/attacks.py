"""The test attacks on the sandbox. They are read from attacks.toml."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

from agentfly_core.sandbox.guest.protocol import Limits, Status

NAMESPACES = ("user", "pid", "mnt", "net", "ipc")
INSIDE = """
import os
for kind, outside in {outside!r}.items():
    assert os.readlink("/proc/self/ns/" + kind) != outside, "not in a private namespace: " + kind
print("inside", flush=True)
"""
"""Code that runs before each test attack on the sandbox. It prints "inside" if the process is in
private namespaces. Otherwise it raises AssertionError.
"""


@dataclass(frozen=True)
class Attack:
    """A test attack on the sandbox.

    The attacks have three targets outside of the sandbox: a port, a process, and a file that
    contains a secret.

    - `code`: the Python code of the attack. `{file}`, `{port}` and `{pid}` are replaced by the path
      of the file, the port, and the id of the process.
    - `ends`: the expected statuses of the execution. The attack counts as successful if the status
      is not in `ends`, if a target is harmed, or if the code returns a file. It also counts as
      successful if the code prints "REACHED" or the secret.
    - `limits`, `collect`: the limits of the execution, and the names of the files to return
    - `probe`: whether the attack is also made before a process uses a sandbox for the first time.
      A sandbox is used only if it stops all these attacks. The backend `unsafe` is used without
      this check.
    """

    name: str
    code: str
    ends: tuple[Status, ...]
    limits: Limits
    collect: tuple[str, ...]
    probe: bool


ATTACKS = tuple(
    Attack(
        attack["name"],
        attack["code"],
        tuple(map(Status, attack.get("ends", ["ok"]))),
        Limits(**attack.get("limits", {"wall": 5.0})),
        tuple(attack.get("collect", ())),
        attack.get("probe", False),
    )
    for attack in tomllib.loads(Path(__file__).with_suffix(".toml").read_text())["attack"]
)
