"""The name and password of the servers that `agentfly up` starts, which it makes once a project."""

from __future__ import annotations

import json
import os
import secrets
import sys
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

FILE = "sign-in.json"
USERS = "mlflow-users.db"
"""MLflow's accounts, with the password that was there when it was made."""
MLFLOW = """[mlflow]
default_permission = NO_PERMISSIONS
database_uri = sqlite:///{users}
authorization_function = mlflow.server.auth:authenticate_request_basic_auth
auth_cache_ttl_seconds = 60
"""


@dataclass(frozen=True, slots=True)
class SignIn:
    """How people and programs sign in: `SignIn("agentfly", "f3Qk...", "9xL0...")`.

    `signing_key` signs the cookies of MLflow's pages.
    """

    name: str
    password: str
    signing_key: str

    @classmethod
    def of(cls, state: Path) -> SignIn:
        """The one of a project, made where there is none; only its owner may read the file.

        With a new one, MLflow's accounts begin anew. Raises ValueError for a damaged file.
        """
        path = state / FILE
        if path.is_file():
            try:
                return cls(**json.loads(path.read_text()))
            except (ValueError, TypeError):
                raise ValueError(
                    f"{path} is damaged. Remove it: the next `agentfly up` makes a new password."
                ) from None
        (state / ".gitignore").write_text("*\n")  # so that nobody commits it
        made = cls("agentfly", secrets.token_urlsafe(24), secrets.token_urlsafe(32))
        (state / USERS).unlink(missing_ok=True)
        part = path.with_suffix(".part")
        with open(part, "w", opener=partial(os.open, mode=0o600)) as file:
            json.dump(asdict(made), file)
        part.rename(path)
        return made

    def shown(self, state: Path) -> str:
        """The password on a terminal; elsewhere its file, since logs and journals keep text."""
        return self.password if sys.stdout.isatty() else f"the password in {state / FILE}"

    @property
    def basic(self) -> str:
        """As Prefect's page asks for it: `agentfly:f3Qk...`."""
        return f"{self.name}:{self.password}"

    @property
    def prefect_client(self) -> dict[str, str]:
        """The environment variables with which Prefect's clients sign in."""
        return {"PREFECT_API_AUTH_STRING": self.basic}

    @property
    def prefect_server(self) -> dict[str, str]:
        """Those with which Prefect's server answers nobody else."""
        return {"PREFECT_SERVER_API_AUTH_STRING": self.basic}

    def mlflow_server(self, state: Path) -> dict[str, str]:
        """Those with which MLflow's server answers nobody else; its settings are written beside."""
        settings = state / "mlflow-users.ini"
        settings.write_text(MLFLOW.format(users=str(state / USERS).replace("%", "%%")))
        return {
            "MLFLOW_AUTH_CONFIG_PATH": str(settings),
            "MLFLOW_AUTH_ADMIN_USERNAME": self.name,
            "MLFLOW_AUTH_ADMIN_PASSWORD": self.password,
            "MLFLOW_FLASK_SERVER_SECRET_KEY": self.signing_key,
        }
