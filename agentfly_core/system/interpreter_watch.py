"""A watchdog on Python's global interpreter lock: ends the program when code holds it too long."""

from __future__ import annotations

import faulthandler
import threading
import time

HELD_SECONDS = 300.0
BEAT = 1.0
_begun = threading.Lock()


def watch(seconds: float = HELD_SECONDS) -> None:
    """From the first call on, end the program when no other thread could run for this many seconds.

    What holds the interpreter for so long (a regular expression that explodes, a C extension that
    does not give it back) keeps every time limit of ours from being looked at, and cannot be ended
    by itself. The lines at which all threads stand go to stderr, and the program ends with exit
    code 1, to be started again.
    """
    if _begun.acquire(blocking=False):
        threading.Thread(target=_beat, args=[seconds], name="beat", daemon=True).start()


def _beat(seconds: float) -> None:
    while True:
        faulthandler.dump_traceback_later(seconds, exit=True, file=2)  # a turn puts it off
        time.sleep(BEAT)
