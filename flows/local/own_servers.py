"""The Prefect and MLflow servers of a project: their programs, ports and password."""

import os
import secrets
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NoReturn

import psutil

from agentfly_core.system.module_search import finding_ours

USER = "agentfly"
FILE = "password"
ACCOUNTS = "mlflow-users.db"
"""The file with MLflow's accounts. MLflow uses a new password only after this file is deleted."""
SERVES = "AGENTFLY_SERVES"
"""The environment variable that marks a project's servers: "prefect /home/user/shop/.agentfly"."""
GUARD = "PREFECT_SERVER_API_AUTH_STRING"
"""The environment variable with the login of a Prefect server, as NAME:PASSWORD."""
REACHED = {"127.0.0.1", "0.0.0.0", "::"}
"""A server that listens at one of these addresses accepts connections to 127.0.0.1."""


@dataclass(frozen=True, slots=True)
class Program:
    """A server or a worker: `Program("mlflow", [python, "-m", "mlflow", "server"], {})`."""

    kind: str
    command: list[str]
    env: dict[str, str] = field(repr=False)

    def become(self) -> NoReturn:
        """Run this server or worker in place of the current process."""
        os.execve(self.command[0], self.command, {**os.environ, **finding_ours(), **self.env})


def mark(*serves: str | Path) -> dict[str, str]:
    """Return the environment variable that marks a server as belonging to a project.

    For example, `mark("prefect", state)` marks the Prefect server of the project with the state
    folder `state`.
    """
    return {SERVES: " ".join(map(str, serves))}


def own(*serves: str | Path) -> dict[int, Mapping[str, str]]:
    """Find running servers by the environment variable with which they were started.

    `own("prefect", state)` finds the Prefect server of a project, which was started with the
    variable `mark("prefect", state)`. Returns the environment variables of each server, by port.
    Only processes of this user are found.
    """
    servers = {}
    for connection in psutil.net_connections("tcp"):
        is_server = connection.status == psutil.CONN_LISTEN and connection.laddr.ip in REACHED
        if is_server and connection.pid:
            # the process may have ended, or belong to another user
            with suppress(psutil.Error):
                environment = psutil.Process(connection.pid).environ()
                if mark(*serves).items() <= environment.items():
                    servers[connection.laddr.port] = environment
    return servers


def own_api(state: Path) -> dict[str, str]:
    """Return the environment variables with which clients reach the project's Prefect server.

    The dictionary is empty if the server is not running.
    """
    for port, environment in own("prefect", state).items():
        url, auth = f"http://127.0.0.1:{port}/api", environment[GUARD]
        return {"PREFECT_API_URL": url, "PREFECT_API_AUTH_STRING": auth}
    return {}


def free_port(preferred: int = 0) -> int:
    """Return the port `preferred`, or any free port if another program uses `preferred`.

    If `preferred` is 0, any free port is returned.
    """
    with socket.socket() as probe:
        # with this option, a port counts as free while its last connections are closing
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", preferred))
        except OSError:
            probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def password(state: Path) -> str:
    """Return a project's password. A missing password is created.

    The password is in a file that only its owner may read. When a password is created, MLflow's
    accounts are deleted, because they may still have an earlier password.
    """
    path = state / FILE
    if not path.exists() or not path.read_text().strip():
        (state / ".gitignore").write_text("*\n")  # this keeps the password out of git
        (state / ACCOUNTS).unlink(missing_ok=True)
        part = path.with_suffix(".part")
        with open(part, "w", opener=partial(os.open, mode=0o600)) as file:
            file.write(secrets.token_urlsafe(24))
        # renamed when it is complete, because another process must not read half of a password
        part.rename(path)
    return path.read_text().strip()


def shown(state: Path) -> str:
    """Return the project's password if stdout is a terminal.

    Otherwise return a text with the path of the password's file, because stdout may be a log.
    """
    return password(state) if sys.stdout.isatty() else f"the password in {state / FILE}"
