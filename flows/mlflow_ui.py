"""Opening a run in the MLflow UI."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from agentfly_core.tracking import Place, page

UI = "http://127.0.0.1:5000"


def open_run(place: Place, run_id: str) -> None:
    """Print a run's address in the MLflow UI, and become the server of that UI where none is running."""
    print(f"{page(place, run_id, UI)}", flush=True)
    if not place.served:
        _serve(place)


def _serve(place: Place) -> NoReturn:
    os.environ["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] = "false"
    words = ["server", "--backend-store-uri", place.uri, "--host", "127.0.0.1", "--port", "5000", "--workers", "1"]
    os.execv(sys.executable, [sys.executable, "-m", "mlflow", *words])
