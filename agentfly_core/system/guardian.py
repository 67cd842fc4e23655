"""A parent process that kills its child and all descendants when its stdin is closed.

    python -m agentfly_core.system.guardian MODULE DESCRIPTOR...

A child process runs the module with these arguments. This process ends like its child: with the
same exit code, or by the same signal. SIGUSR1 is forwarded to the child.
"""

import os
import resource
import runpy
import select
import signal
import sys

from agentfly_core.system.supervisor import become_subreaper, die_with_parent, kill_descendants


def main() -> None:
    """Fork a child that runs the module. Wait until the child ends or stdin is closed."""
    module, *numbers = sys.argv[1:]
    become_subreaper()
    if (child := os.fork()) == 0:
        # the guardian itself may be killed; then nobody else would end the child
        die_with_parent()
        os.dup2(os.open(os.devnull, os.O_RDONLY), sys.stdin.fileno())
        sys.argv = [module, *numbers]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        os._exit(0)  # do not wait for threads that authors' code started

    for descriptor in map(int, numbers):
        # otherwise the socket would stay open here, and the owner would not notice the child's end
        os.close(descriptor)
    signal.signal(signal.SIGUSR1, lambda *_: os.kill(child, signal.SIGUSR1))
    ends = select.poll()
    ends.register(sys.stdin, 0)  # report only that stdin is closed
    ends.register(os.pidfd_open(child), select.POLLIN)
    ends.poll()
    # WNOWAIT leaves the child a zombie: no other process can get its process id
    # before the descendants are killed
    ended = os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    kill_descendants()
    if ended and ended.si_code == os.CLD_EXITED:
        sys.exit(ended.si_status)
    if ended:
        end_by(ended.si_status)


def end_by(number: int) -> None:
    """End this process by a signal, without a core dump."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # the kernel allows no handler for SIGKILL
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


if __name__ == "__main__":
    main()
