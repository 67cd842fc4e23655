"""A parent process that kills its child and all descendants when the parent's stdin is closed.

    python -m agentfly_core.system.guardian MODULE DESCRIPTOR...

A child process runs MODULE with the arguments DESCRIPTOR... This process ends as its child does:
with the same exit code, or by the same signal. SIGUSR1 is forwarded to the child.
"""

import os
import resource
import runpy
import select
import signal
import sys

from agentfly_core.system.supervisor import become_subreaper, die_with_parent, kill_descendants


def main() -> None:
    """Run the Python module in the first argument as a child process, and wait for its end.

    When the child ends or stdin is closed, kill all descendants. If the child has ended, end with
    the child's exit code or signal.
    """
    module, *numbers = sys.argv[1:]
    become_subreaper()
    if (child := os.fork()) == 0:
        # if the guardian itself is killed, the kernel must end the child
        die_with_parent()
        os.dup2(os.open(os.devnull, os.O_RDONLY), sys.stdin.fileno())
        sys.argv = [module, *numbers]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        os._exit(0)  # do not wait for threads that authors' code started

    for descriptor in map(int, numbers):
        # if a socket stayed open here, the owner would not notice that the child has ended
        os.close(descriptor)
    signal.signal(signal.SIGUSR1, lambda *_: os.kill(child, signal.SIGUSR1))
    ends = select.poll()
    ends.register(sys.stdin, 0)  # report only that stdin is closed
    ends.register(os.pidfd_open(child), select.POLLIN)
    ends.poll()
    # with WNOWAIT, the child stays a zombie, and its process id is not reused before the
    # descendants are killed
    ended = os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    kill_descendants()
    if ended and ended.si_code == os.CLD_EXITED:
        sys.exit(ended.si_status)
    if ended:
        end_by(ended.si_status)


def end_by(number: int) -> None:
    """End this process by the signal `number`, without a core dump."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # the kernel allows no handler for SIGKILL
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


if __name__ == "__main__":
    main()
