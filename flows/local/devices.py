"""The devices of a flow: GPUs, or a slot of the CPU for a flow run of a Prefect worker."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from prefect import get_run_logger

from agentfly_core.config.site import Site
from agentfly_core.system.devices import Device, held, numbered, slot

logger = logging.getLogger(__name__)


@contextmanager
def devices(site: Site, gpus: Sequence[int], holder: str) -> Iterator[None]:
    """Hold a site's GPUs, or a CPU slot, for `holder`; flows in the block share them.

    Reports other holders on the terminal, or in the log of a worker's flow run. Raises ValueError
    for missing GPUs.
    """
    # a worker's process alone has it; in a flow, Prefect's runtime always has an id
    by_worker = "PREFECT__FLOW_RUN_ID" in os.environ
    log = get_run_logger() if by_worker else logger
    wanted: list[Device] = []
    if site.device == "cuda":
        wanted = numbered(gpus, site.locks)
    elif by_worker:
        wanted = [slot(site.slots, site.locks)]
    with held(wanted, holder, log.warning):
        yield
