"""Nightly training. A night trains on new problems, and starts from the champion (best policy).

The trained policy becomes the new champion only if it is better.
"""

import datetime
import logging
import os
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit, urlunsplit

from prefect import flow, get_run_logger, runtime
from prefect.context import FlowRunContext

from agentfly_core.config import loading
from agentfly_core.records.run_record import Summary
from agentfly_core.reports.nights.night_ledger import DECIDED, NightLedger
from agentfly_core.reports.nights.nights import PREFIX, Nights, name_of_night
from flows.flow_run import devices, experiment_of_flow
from flows.nights.deployment_schedule import record_missed, scheduled_date
from flows.nights.flow_work import FlowWork
from flows.parameters import (
    Approval,
    Attempts,
    ExperimentName,
    Hours,
    NightDate,
    Overrides,
    SiteName,
    StoreUri,
)

LIMIT_S = 10.0
logger = logging.getLogger(__name__)


def _title() -> str:
    return PREFIX + str(runtime.flow_run.parameters["date"] or _scheduled())


@flow(name="nightly", flow_run_name=_title)
def nightly(
    experiment: ExperimentName = "quickstart",
    overrides: Overrides = [],  # noqa: B006
    date: NightDate = None,
    site: SiteName = "local",
    store: StoreUri = "",
    hours: Hours = None,
    attempts: Attempts = 3,
    approval: Approval = False,
) -> Summary:
    """First finish the earlier nights (nightly training runs) that were interrupted. Then train the
    run nightly-<date> on the problems that follow the last night's problems. If the new policy
    beats the champion (the policy that new policies must beat), it becomes the champion. With
    `approval`, a person must agree first. A night is given up after `attempts` failed attempts to
    train it.
    """
    today = date or _scheduled()
    with pinging(loading.site(site, store).ping_url_env):
        loaded = experiment_of_flow(experiment, overrides, site, store)
        ledger = NightLedger(loaded.store, loaded.name)
        work = FlowWork(loaded, ledger, list(overrides), hours)
        with devices(loaded.site, loaded.site.gpus, f"the night of {today}"):
            record_missed(ledger, today)
            # after the wait for devices, because another experiment may take the name meanwhile
            tonight = name_of_night(loaded.store, loaded.name, today)
            if ledger.read().last(tonight, *DECIDED):
                get_run_logger().warning(
                    "The night %s is already judged, so nothing is changed.", tonight
                )
            return Nights(loaded, ledger, work, attempts, approval).run(tonight)


def _scheduled() -> datetime.date:
    loaded = FlowRunContext.get()
    assert loaded is not None and loaded.flow_run is not None, "a flow has a flow run"
    return scheduled_date(loaded.flow_run)


@contextmanager
def pinging(variable: str) -> Iterator[None]:
    """At the end of the `with` block, call the URL in an environment variable.

    If the block raises an error, `/fail` is appended to the path of the URL, as healthchecks.io
    expects. `variable` is the name of the environment variable. If the name is empty, no URL is
    called. A failed call is logged without the URL, which may be a secret.
    """
    suffix = "/fail"
    try:
        yield
        suffix = ""
    finally:
        if variable:
            _call(variable, suffix)


def _call(variable: str, suffix: str) -> None:
    try:
        parts = urlsplit(os.environ[variable])
        path = parts.path.rstrip("/") + suffix if suffix else parts.path
        # urllib logs nothing; httpx and requests log the URL
        with urllib.request.urlopen(urlunsplit(parts._replace(path=path)), timeout=LIMIT_S):
            pass
    except Exception as error:  # errors have many types, and their text may contain the URL
        logger.warning(
            "The URL in the environment variable %s could not be called: %s.",
            variable,
            type(error).__name__,
        )
