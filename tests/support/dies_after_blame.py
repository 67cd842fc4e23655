"""A session that is killed when a worker's death is blamed on an episode, before its replay.

python -m tests.support.dies_after_blame FOLDER PLACE DEED
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

from agentfly_core.pipeline.workers.job import Blame
from tests.support.worker_sessions import session

if __name__ == "__main__":
    store_blame = Blame.with_failed

    def dies(*arguments: Any) -> Blame:
        store_blame(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError

    Blame.with_failed = dies  # type: ignore[assignment, method-assign]
    folder, place, deed = sys.argv[1:]
    with session(Path(folder)) as play:
        play(place, deed)
