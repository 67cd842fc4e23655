"""Save learner states (weights and optimizer states) in the background, while training
continues.
"""

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

from agentfly_core.system.service import ServiceLost
from agentfly_core.training.client import DeepSpeedLearner

logger = logging.getLogger(__name__)


class AsyncCheckpointer:
    """Saves learner states in the background, one at a time.

    Training waits only until the state is copied in memory.
    """

    def __init__(self, learner: DeepSpeedLearner) -> None:
        self.learner = learner
        self._thread = ThreadPoolExecutor(1, "saving")
        self._begun: Future[None] | None = None

    def begin(self, publication: AbstractContextManager[Path], then: Callable[[], object]) -> None:
        """Copy the state of the learner, and return. A thread writes and publishes the copy, and
        then calls `then`.

        `publication` is a context manager, which yields the folder for the copy, and publishes the
        folder on exit. The method first calls `wait`, which raises an error if the previous save
        failed. Raises ServiceLost or LearnerFailed if the state cannot be copied.
        """
        self.wait()
        with ExitStack() as stack:
            written = self.learner.save_state(stack.enter_context(publication))
            # the thread leaves the block of `publication`, which publishes the written files
            self._begun = self._thread.submit(_end, stack.pop_all(), written, then)

    def now(self, publication: AbstractContextManager[Path]) -> None:
        """Write and publish the state of the learner in this thread.

        `publication` is a context manager, which yields the folder for the state, and publishes the
        folder on exit. The method first calls `wait`, which raises an error if the previous save
        failed.
        """
        self.wait()
        with publication as folder:
            self.learner.save_state(folder)()

    def busy(self) -> bool:
        """Whether a save is running. If the last save failed, its error is handled as in `wait`."""
        if self._begun and self._begun.done():
            self.wait()
        return self._begun is not None

    def wait(self) -> None:
        """Wait for the running save, and raise its error if it fails.

        The error ServiceLost is only logged, because the lost learner state can be recomputed from
        an older learner state.
        """
        # cleared before the result is read: an error is raised only once, and later saves can run
        begun, self._begun = self._begun, None
        try:
            if begun:
                begun.result()
        except ServiceLost as error:
            logger.warning(
                "A learner state could not be saved. Training computes this state again when "
                "needed. The error: %s",
                error,
            )


def _end(publication: ExitStack, written: Callable[[], object], then: Callable[[], object]) -> None:
    with publication:
        written()
    then()
