"""Learner states that are saved in the background."""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from agentfly_core.system.service import ServiceLost
from agentfly_core.training.checkpointing import AsyncCheckpointer


class Dying:
    """A learner that dies while it writes a state."""

    def save_state(self, folder: Path) -> Callable[[], object]:
        def write() -> None:
            raise ServiceLost("the learner ended: SIGKILL")

        return write


def test_a_state_that_dies_with_its_learner_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    published = list[bool]()
    checkpointer = AsyncCheckpointer(Dying())  # type: ignore[arg-type]
    checkpointer.begin(nullcontext(tmp_path), lambda: published.append(True))
    checkpointer.wait()
    assert "the learner ended: SIGKILL" in caplog.text
    assert (published, checkpointer.busy()) == ([], False)
