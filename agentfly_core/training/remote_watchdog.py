"""The program that runs a command on another node.

The node that started this program sends heartbeats to the program's stdin. If stdin is closed, or
if a minute passes without a heartbeat, the command and its descendants are killed.
"""

import os
import select
import signal
import subprocess
import sys

from agentfly_core.system.supervisor import become_subreaper, end_politely, kill_descendants

SIGN = b"."
SILENCE = 60.0


def main() -> None:
    """Run the command in this program's arguments. Kill it if no heartbeats arrive on stdin."""
    # an exception, so that `finally` kills the command
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    become_subreaper()
    child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
    try:
        dead = os.pidfd_open(child.pid)
        # stdin is readable if a heartbeat arrived or if stdin was closed, and `dead` is readable if
        # the command has ended
        while select.select([0, dead], [], [], SILENCE)[0] == [0] and os.read(0, 64):
            pass
        end_politely(child)
    finally:
        kill_descendants()
    sys.exit(child.returncode or 1)


if __name__ == "__main__":
    main()
