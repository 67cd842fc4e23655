"""Serve MLflow's UI on the project's store, and open a run's page in MLflow or Prefect."""

import hashlib
import sys
from typing import Literal

from agentfly_core.config.site import Site
from agentfly_core.runs.listing import continuing
from agentfly_core.runs.run import known_run, links_of
from agentfly_core.runs.tracking.mlflow_client import MlflowStore, page
from agentfly_core.store.store import Store
from flows.local.own_servers import ACCOUNTS, USER, Program, free_port, mark, own, password, shown
from flows.local.prefect_server import open_flow_run
from flows.local.state_dirs import settle

PORT = 5000
"""The port of the project's MLflow UI. If another program uses it, a free port is chosen."""
SETTINGS = """[mlflow]
default_permission = NO_PERMISSIONS
database_uri = sqlite:///{accounts}
authorization_function = mlflow.server.auth:authenticate_request_basic_auth
auth_cache_ttl_seconds = 60
"""
Ui = Literal["mlflow", "prefect"]
IDS = {"mlflow": "mlflow_run_ids", "prefect": "prefect_flow_run_ids"}


def mlflow_server(place: MlflowStore, port: int) -> Program:
    """Return the program that serves the MLflow UI of the store `place` at the port `port`.

    Also write the settings file of the program, and create the store if it does not exist.
    """
    state, secret = place.state, password(place.state)
    # configparser takes a single % for the start of a reference
    settings, accounts = state / "mlflow-users.ini", str(state / ACCOUNTS).replace("%", "%%")
    settings.write_text(SETTINGS.format(accounts=accounts))
    place.create()
    command = [sys.executable, "-m", "mlflow", "server", "--app-name", "basic-auth"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", place.uri, "--artifacts-destination", f"{state}/mlartifacts"]
    env = {
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_AUTH_CONFIG_PATH": str(settings),
        "MLFLOW_AUTH_ADMIN_USERNAME": USER,
        "MLFLOW_AUTH_ADMIN_PASSWORD": secret,
        # derived from the password: people stay signed in after a restart
        "MLFLOW_FLASK_SERVER_SECRET_KEY": hashlib.sha256(f"key {secret}".encode()).hexdigest(),
    }
    return Program("mlflow", command, env | mark("mlflow", state, place.uri))


def mlflow_place(site: Site) -> MlflowStore:
    """Return the MLflow store that a site (machine settings) uses."""
    return MlflowStore.choose(settle().state, site.mlflow_tracking_uri)


def serving(place: MlflowStore) -> str:
    """Return the address of the server of an MLflow store, or "" if no server is running."""
    if place.served:
        return place.uri
    ports = own("mlflow", place.state, place.uri)
    return next((f"http://127.0.0.1:{port}" for port in ports), "")


def open_run(place: MlflowStore, run_id: str) -> None:
    """Print the address of a run's page in the MLflow UI.

    If no server is running, replace this process by the server. Raises ValueError if MLflow cannot
    be used or does not have the run.
    """
    server, port = serving(place), free_port(PORT)
    try:
        print(page(place, run_id, server or f"http://127.0.0.1:{port}"), flush=True)
    except Exception as error:  # MLflow raises errors of many types
        raise ValueError(
            f"MLflow at {place.uri} ({place.why}) does not show the run {run_id}: {error}"
        ) from error
    if not server:
        print(f"Sign in (user name, password): {USER}, {shown(place.state)}", flush=True)
        mlflow_server(place, port).become()


def open_page(store: Store, run: str, ui: Ui) -> None:
    """Print the address of a run's page in the UI of MLflow or Prefect.

    `ui` selects one of these UIs. If no server of this UI is running, this process then becomes the
    server, and the function does not return. Raises ValueError if the UI does not have the run.
    """
    record = known_run(store, run)
    ids = links_of(store, run).get(IDS[ui])
    if not ids:
        again = continuing(store, run, record)
        raise ValueError(
            f"{ui} does not have the run {run}, because {ui} was not reachable. To send the run: "
            f"{again}"
        )
    places = settle()
    if ui == "prefect":
        open_flow_run(places, ids[-1])
    else:
        open_run(MlflowStore.choose(places.state, record["site"]["mlflow_tracking_uri"]), ids[-1])
