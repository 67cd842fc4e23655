"""How `agentfly up` starts at each boot: a unit of systemd, or a line for crontab."""

from __future__ import annotations

import getpass
import hashlib
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from agentfly_core.system.files import write_text
from flows.up.worker import GRACE

ALIKE = [sys.executable, "-P", "-m", "flows", "up"]
"""The command that is this very `agentfly up`, whatever is on the PATH."""
SYSTEMD = Path("/run/systemd/system")
LINGERING = Path("/var/lib/systemd/linger")
STOP_SECONDS = int(GRACE) + 60
UNIT = """\
[Unit]
Description=AgentFly in {project}
StartLimitIntervalSec=900
StartLimitBurst=5

[Service]
WorkingDirectory={project}
EnvironmentFile=-{state}/environment
ExecStart={command}
KillMode=mixed
TimeoutStopSec={stop}
Restart=on-failure
RestartSec=30

[Install]
WantedBy=default.target
"""
_MEANT = str.maketrans({"\\": "\\\\", '"': '\\"', "%": "%%", "$": "$$"})
"""What characters that mean something in a word of ExecStart= are written as."""


def at_boot(project: Path, options: Sequence[str]) -> list[str]:
    """What to do to have it started at each boot, where systemd runs with a unit that is written
    into the project's state.
    """
    command = [*ALIKE, *options]
    if not SYSTEMD.is_dir():
        return [f"At each boot, by crontab -e: {crontab_line(project, [*command, '--detach'])}"]
    path = project / ".agentfly" / unit_name(project)
    write_text(path, unit(project, command))
    commands = [f"At each boot: systemctl --user enable --now {shlex.quote(str(path))}"]
    if not (LINGERING / getpass.getuser()).exists():
        commands += ["And, to run while you are logged out: loginctl enable-linger"]
    return commands


def unit(project: Path, command: Sequence[str]) -> str:
    """The text of systemd.service(5); at its end flow runs may finish what they are writing."""
    return UNIT.format(
        project=_escaped(project),
        state=_escaped(project / ".agentfly"),
        command=" ".join(f'"{word.translate(_MEANT)}"' for word in command),
        stop=STOP_SECONDS,
    )


def unit_name(project: Path) -> str:
    """`agentfly-my-shop-4f1c09a2.service`, of characters that systemd takes in a name."""
    word = re.sub(r"[^A-Za-z0-9]+", "-", project.name).strip("-")
    digest = hashlib.sha256(str(project).encode()).hexdigest()[:8]
    return f"agentfly-{f'{word}-' if word else ''}{digest}.service"


def crontab_line(project: Path, command: Sequence[str]) -> str:
    """A line of crontab(5), which ends a command at a bare %."""
    line = f"cd {shlex.quote(str(project))} && {shlex.join(command)}"
    return f"@reboot {line}".replace("%", r"\%")


def _escaped(path: Path) -> str:
    """A path as the whole value of a line, where % begins a specifier."""
    return str(path).replace("%", "%%")
