"""Whether nights start by themselves, and whether a person is alarmed when one does not."""

from __future__ import annotations

import os

from flows.local.doctor import Finding
from flows.local.prefect_server import answers, use
from flows.nights.alarms import ALARMS_BLOCK, blocks_named
from flows.nights.deployment_schedule import DEPLOYMENT

GUIDE = "see docs/nights.md, *Be told*"


def nights(api: str, ping_url_env: str) -> Finding:
    """Where Prefect answers, whether the schedule of nights is on, whether an alarm block and the
    URL that is called after each night are there.
    """
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError

    if not api:
        return _no("no Prefect server of this project", "for nights: agentfly up")
    if not answers(api):
        return _no(f"no Prefect server at {api}", "for nights: agentfly up")
    use(api)
    try:
        with get_client(sync_client=True) as client:
            schedules = client.read_deployment_by_name(DEPLOYMENT).schedules
            alarmed = bool(blocks_named(client)[ALARMS_BLOCK])
    except ObjectNotFound:
        return _no(f"nothing is deployed at {api}", "for nights: python -m flows.deploy")
    except PrefectHTTPStatusError as error:
        status = error.response.status_code
        return _no(f"{api} answers {status}", "set PREFECT_API_AUTH_STRING to the server's")

    on, pinged = any(schedule.active for schedule in schedules), bool(os.environ.get(ping_url_env))
    parts = [
        f"schedule {'on' if on else 'off'} at {api}",
        f"{'a' if alarmed else 'no'} block {ALARMS_BLOCK}",
        f"the URL in {ping_url_env} is {'called' if pinged else 'NOT SET'} after each"
        if ping_url_env
        else "no ping_url_env",
    ]
    ok = on and (alarmed or pinged) and (pinged or not ping_url_env)
    return Finding("nights", ok, ", ".join(parts), GUIDE, needed=False)


def _no(detail: str, remedy: str) -> Finding:
    return Finding("nights", False, detail, remedy, needed=False)
