"""Programs that tests start, and that end with the tests, also when those are killed."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from agentfly_core.system.service import supervised
from agentfly_core.system.supervisor import ChildState
from tests.support.waiting import LIMIT


@contextmanager
def serving(
    command: Sequence[str], address: Path, log: Path, env: Mapping[str, str] = {}
) -> Iterator[int]:
    """Run a server and its child processes within the block; yields its process id.

    Its output goes to `log`; `address` is the state folder of its supervisor.
    """
    with supervised("tests'", command, env, address, log, "tests", restarts=0) as service:
        service.wait(lambda: bool(_children(service.address)), LIMIT)
        yield _children(service.address)[0].pid


def _children(address: str) -> list[psutil.Process]:
    """Child processes of the supervisor of a service; empty before the first start."""
    state = ChildState.read(address)
    return psutil.Process(state.keeper).children() if state and state.starts else []
