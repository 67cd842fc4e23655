"""The start of `agentfly up` at each boot: a unit of systemd, or a line for crontab."""

from __future__ import annotations

import hashlib
import shlex
import sys
from pathlib import Path

from agentfly_core.system.files import write_text
from flows.up.serving import GRACE

SYSTEMD = Path("/run/systemd/system")
UNIT = """\
[Unit]
Description=AgentFly in {project}
StartLimitIntervalSec=900
StartLimitBurst=5

[Service]
WorkingDirectory={project}
EnvironmentFile=-{project}/.agentfly/environment
ExecStart={command}
KillMode=mixed
TimeoutStopSec={stop}
Restart=on-failure
RestartSec=30

[Install]
WantedBy=default.target
"""
SPECIAL = str.maketrans({"\\": "\\\\", '"': '\\"', "%": "%%", "$": "$$"})
"""Escapes of a quoted word of ExecStart=, systemd.service(5)."""


def at_boot(project: Path, ports: tuple[int, int]) -> list[str]:
    """How to start it at each boot; writes the unit where systemd runs."""
    options = [f"--prefect-port={ports[0]}", f"--mlflow-port={ports[1]}"]
    command = [sys.executable, "-P", "-m", "flows", "up", *options]
    if not SYSTEMD.is_dir():
        line = f"cd {shlex.quote(str(project))} && {shlex.join([*command, '--detach'])}"
        return [f"At each boot, by crontab -e: @reboot {line}".replace("%", r"\%")]
    name = f"agentfly-{hashlib.sha256(bytes(project)).hexdigest()[:8]}.service"
    words = " ".join(f'"{word.translate(SPECIAL)}"' for word in command)
    escaped, path = str(project).replace("%", "%%"), project / ".agentfly" / name
    write_text(path, UNIT.format(project=escaped, command=words, stop=int(GRACE) + 60))
    return [
        f"At each boot: systemctl --user enable --now {shlex.quote(str(path))}",
        "And, to run while you are logged out: loginctl enable-linger",
    ]
