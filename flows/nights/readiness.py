"""Check whether nights start by themselves, and whether a person hears of failures."""

from __future__ import annotations

import os

from flows.local.doctor import Finding
from flows.local.prefect_server import answers, use
from flows.nights.alarms import ALARMS_BLOCK, blocks_by_name
from flows.nights.deployment_schedule import DEPLOYMENT

GUIDE = "see docs/nights.md, *Alarms*"


def nights(api: str, ping_url_env: str) -> Finding:
    """Check the schedule of nights, the block for alarms and the URL called after each night."""
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError

    if not api or not answers(api):
        where = f"at {api}" if api else "of this project"
        return _missing(f"no Prefect server {where}", "for nights: agentfly up")
    use(api)
    try:
        with get_client(sync_client=True) as client:
            schedules = client.read_deployment_by_name(DEPLOYMENT).schedules
            alarmed = ALARMS_BLOCK in blocks_by_name(client)
    except ObjectNotFound:
        return _missing(f"no deployment nightly at {api}", "for nights: python -m flows.deploy")
    except PrefectHTTPStatusError as error:
        status = error.response.status_code
        return _missing(f"{api} answers {status}", "set PREFECT_API_AUTH_STRING to the server's")

    on, pinged = any(schedule.active for schedule in schedules), bool(os.environ.get(ping_url_env))
    called = f"the URL in {ping_url_env} is {'called' if pinged else 'NOT SET'} after each"
    detail = (
        f"schedule {'on' if on else 'off'} at {api}, {'a' if alarmed else 'no'} block "
        f"{ALARMS_BLOCK}, {called if ping_url_env else 'no ping_url_env'}"
    )
    ok = on and (alarmed or pinged) and (pinged or not ping_url_env)
    return Finding("nights", ok, detail, GUIDE, needed=False)


def _missing(detail: str, remedy: str) -> Finding:
    return Finding("nights", False, detail, remedy, needed=False)
