"""Attacks on the sandbox, from attacks.toml."""

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
"""Each attack first checks that it is in private namespaces, and prints "inside"."""


@dataclass(frozen=True)
class Attack:
    """A test attack. In its `code`, `{file}`, `{port}` and `{pid}` are replaced by the file, the
    port and the process id of the target.

    An attack counts as stopped if it ends with a status in `ends` and does not print "REACHED".
    Before a sandbox is used for the first time, it must stop all attacks with `probe`.
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
