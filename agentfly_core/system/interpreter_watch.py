"""A watchdog on Python's global interpreter lock: ends the program when code holds it too long."""

from __future__ import annotations

import faulthandler
import threading
import time

HELD_SECONDS = 300.0
BEAT = 1.0
_begun = threading.Lock()


def watch(seconds: float = HELD_SECONDS) -> None:
    """End the program with exit code 1 if no other thread could run for this many seconds.

    A regular expression or C extension that holds the interpreter defeats all time limits. The
    stacks of all threads go to stderr.
    """
    if _begun.acquire(blocking=False):
        threading.Thread(target=_beat, args=[seconds], name="beat", daemon=True).start()


def _beat(seconds: float) -> None:
    while True:
        faulthandler.dump_traceback_later(seconds, exit=True, file=2)  # a turn puts it off
        time.sleep(BEAT)
