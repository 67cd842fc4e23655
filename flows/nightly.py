"""Nightly training: each night new problems, from the champion, and only a better policy becomes
the champion.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from contextlib import contextmanager

from prefect import flow, get_run_logger, runtime
from prefect.context import FlowRunContext

from agentfly_core.config import loading
from agentfly_core.config.site import Site
from agentfly_core.pipeline.retention import NoSpace
from agentfly_core.records.run_record import Summary
from agentfly_core.reports.nights.night_ledger import DECIDED, NightLedger
from agentfly_core.reports.nights.night_plan import PREFIX, name_of_night
from agentfly_core.reports.nights.nights import Nights
from agentfly_core.system.formats.text import fault
from flows.flow_run import experiment_of_flow
from flows.local.devices import devices
from flows.nights.asking import ask_again
from flows.nights.deployment_schedule import scheduled_date
from flows.nights.events import tell
from flows.nights.flow_work import FlowWork
from flows.nights.missed import note_missed
from flows.nights.ping import ping
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
    """Train the run nightly-<date> on the problems behind those of the last night, and promote its
    policy if it is better; finish interrupted nights first, or give them up.
    """
    today = date or _scheduled()
    with _reporting_end(f"{PREFIX}{today}", experiment, loading.site(site, store)):
        loaded = experiment_of_flow(experiment, overrides, site, store)
        ledger = NightLedger(loaded.store, loaded.name)
        work = FlowWork(loaded, ledger, list(overrides), hours)
        with devices(loaded.site, loaded.site.gpus, f"the night of {today}"):
            note_missed(ledger, today)
            ask_again(ledger, loaded.site.name)
            # another experiment may have taken the name in the wait
            tonight = name_of_night(loaded.store, loaded.name, today)
            if ledger.last(tonight, *DECIDED):
                get_run_logger().warning(
                    "%s is finished and judged already: this flow run's settings have no effect.",
                    tonight,
                )
            return Nights(loaded, ledger, work, attempts, approval).run(tonight)


@contextmanager
def _reporting_end(night: str, experiment: str, site: Site) -> Iterator[None]:
    """Tell how a night ended: the URL of the site either way, people where it failed."""
    success = False
    try:
        yield
        success = True
    except NoSpace:  # which has been reported
        raise
    except BaseException as error:  # whatever ends it, people hear of it
        tell("crashed", night, experiment, fault(error))
        raise
    finally:
        ping(site.ping_url_env, success)


def _scheduled() -> datetime.date:
    experiment = FlowRunContext.get()
    assert experiment is not None and experiment.flow_run is not None, "a flow has a flow run"
    return scheduled_date(experiment.flow_run)
