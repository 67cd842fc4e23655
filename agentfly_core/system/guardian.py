"""The parent of a process that ends with all that it started.

    python -m agentfly_core.system.guardian MODULE DESCRIPTOR...

A child runs the module with these arguments. It is killed with its descendants when stdin of
this process is closed. The exit code is that of the child, or 128 and the signal that ended it.
SIGUSR1 is passed on.
"""

from __future__ import annotations

import os
import runpy
import select
import signal
import sys

from agentfly_core.system.supervisor import become_subreaper, die_with_parent, kill_descendants


def main() -> None:
    """Run as the parent and as its child."""
    module, *numbers = sys.argv[1:]
    become_subreaper()
    if (child := os.fork()) == 0:
        die_with_parent()
        os.dup2(os.open(os.devnull, os.O_RDONLY), sys.stdin.fileno())
        sys.argv = [module, *numbers]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        os._exit(0)  # the interpreter would wait for threads that authors' code left behind

    for descriptor in map(int, numbers):
        os.close(descriptor)
    signal.signal(signal.SIGUSR1, lambda *_: os.kill(child, signal.SIGUSR1))
    ends = select.poll()
    ends.register(sys.stdin, 0)  # nothing but its end
    ends.register(os.pidfd_open(child), select.POLLIN)
    ends.poll()
    ended = os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    kill_descendants()
    if ended:
        sys.exit(ended.si_status + (0 if ended.si_code == os.CLD_EXITED else 128))


if __name__ == "__main__":
    main()
