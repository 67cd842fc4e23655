"""What `agentfly up` of a project serves, as it has written it down for the other commands."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from agentfly_core.system.files import write_json
from agentfly_core.system.formats import strict_json
from agentfly_core.system.process import Owner

FILE = "up.json"


@dataclass(frozen=True, slots=True)
class Servers:
    """The servers of a project, and the process that keeps them.

    `Servers("http://127.0.0.1:4200", "http://127.0.0.1:5000", "0.1.0", Owner(...), True, ())`;
    `ready` when all of it works, `faults` says what has died for good since.
    """

    prefect: str
    mlflow: str
    version: str
    owner: Owner
    ready: bool = False
    faults: tuple[str, ...] = ()

    @classmethod
    def running(cls, state: Path) -> Servers | None:
        """Those of a project; None where no process of this machine keeps them."""
        try:
            match strict_json.parse((state / FILE).read_text()):
                case {
                    "prefect": str(prefect),
                    "mlflow": str(mlflow),
                    "version": str(version),
                    "owner": dict(owner),
                    "ready": bool(ready),
                    "faults": list(faults),
                }:
                    keeper = Owner.of(owner)
                    if keeper.here and keeper.alive:
                        messages = tuple(map(str, faults))
                        return cls(prefect, mlflow, version, keeper, ready, messages)
        except (FileNotFoundError, ValueError):  # nobody's, or cut by a full disk
            pass
        return None

    def write(self, state: Path) -> None:
        """Write it down."""
        write_json(state / FILE, {**asdict(self), "faults": list(self.faults)})

    @property
    def api(self) -> str:
        """Prefect's API."""
        return f"{self.prefect}/api"
