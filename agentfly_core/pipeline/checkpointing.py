"""Learner states on their way to the store while training continues."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

from agentfly_core.training.client import DeepSpeedLearner
from agentfly_core.training.job import LearnerLost

logger = logging.getLogger(__name__)


class AsyncCheckpointer:
    """A learner, and the saving of its states, one at a time: training waits for the copy in memory
    only.
    """

    def __init__(self, learner: DeepSpeedLearner) -> None:
        self.learner = learner
        self._thread = ThreadPoolExecutor(1, "saving")
        self._begun: Future[None] | None = None

    def begin(self, publication: AbstractContextManager[Path], then: Callable[[], object]) -> None:
        """Copy the learner's state; a thread writes it to the folder of the publication, ends that,
        and does `then`.

        Waits for the state before this one. Raises what went wrong with that, LearnerLost and
        LearnerFailed.
        """
        self.wait()
        with ExitStack() as stack:
            written = self.learner.save_state(stack.enter_context(publication))
            self._begun = self._thread.submit(_end, stack.pop_all(), written, then)

    def now(self, publication: AbstractContextManager[Path]) -> None:
        """Write and publish it before anything else is done; raises what went wrong."""
        self.wait()
        with publication as folder:
            self.learner.save_state(folder)()

    def busy(self) -> bool:
        """Whether a state is on its way; raises what `wait` would where one is not any more."""
        if self._begun and self._begun.done():
            self.wait()
        return self._begun is not None

    def wait(self) -> None:
        """Until nothing is on its way any more; raises what went wrong, once, unless it was that
        the learner died.

        That is only logged: its next update starts from an older state.
        """
        begun, self._begun = self._begun, None
        try:
            if begun:
                begun.result()
        except LearnerLost as error:
            logger.warning(
                "A learner state was not saved, and is recomputed when it is needed: %s", error
            )


def _end(publication: ExitStack, written: Callable[[], object], then: Callable[[], object]) -> None:
    with publication:
        written()
    then()
