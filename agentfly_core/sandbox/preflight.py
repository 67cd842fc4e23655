"""Choose a backend of the sandbox: the first backend that stops all test attacks on this
machine.
"""

import asyncio
import functools
import os
import threading

from agentfly_core.sandbox.attacks import ATTACKS
from agentfly_core.sandbox.backends import Bubblewrap, ForkServer, Unavailable, Unsafe
from agentfly_core.sandbox.cgroups import Cgroups
from agentfly_core.sandbox.guest.protocol import ExecRequest
from agentfly_core.sandbox.sandbox import Sandbox
from agentfly_core.sandbox.self_test import attacked
from agentfly_core.system.service import SANDBOX

SECONDS = 30.0
KINDS: dict[str, type[ForkServer | Bubblewrap]] = {k.name: k for k in (ForkServer, Bubblewrap)}
WHAT_TO_DO = (
    "Allow user namespaces (sysctl kernel.apparmor_restrict_unprivileged_userns=0 "
    "user.max_user_namespaces=10000; in a container: run it with --cap-add SYS_ADMIN "
    "--security-opt seccomp=unconfined --security-opt apparmor=unconfined), or install "
    f"bubblewrap. {SANDBOX}=unsafe runs model-written code without a sandbox: it can use your "
    "files and your network."
)
_lock = threading.Lock()


def chosen() -> Sandbox:
    """Return the sandbox of this process.

    The environment variable AGENTFLY_SANDBOX names the backend of the sandbox. If it is not set,
    the first backend that works is used. The result is cached.

    Raises ValueError if AGENTFLY_SANDBOX is not the name of a backend. Raises Unavailable if no
    backend works. The message of this error contains a remedy.
    """
    with _lock:
        return _chosen(os.environ.get(SANDBOX, ""))


@functools.cache
def _chosen(wanted: str) -> Sandbox:
    if wanted == Unsafe.name:
        return Sandbox(Unsafe(), Cgroups.detect())
    if wanted and wanted not in KINDS:
        raise ValueError(
            f"{SANDBOX}: got {wanted!r}, expected one of {', '.join([*KINDS, Unsafe.name])}."
        )
    cgroups, refused = Cgroups.detect(), dict[str, str]()
    for name, kind in KINDS.items():
        if wanted in ("", name):
            sandbox = Sandbox(kind(), cgroups, dict(refused))
            why = asyncio.run(_weakness(sandbox))
            if not why:
                return sandbox
            refused[name] = why
            sandbox.close()
    tried = "; ".join(f"{name}: {why}" for name, why in refused.items())
    raise Unavailable(f"No sandbox for model-written code works here ({tried}). {WHAT_TO_DO}")


async def _weakness(sandbox: Sandbox) -> str:
    """Return the reason why a sandbox cannot be used, or "" if it can be used.

    The reason is that a test program fails, or that the sandbox does not stop an attack.
    """
    try:
        first = await sandbox.execute(ExecRequest(b"print(6 * 7)"))
        if first.stdout != "42\n":
            return first.stderr or first.status
        async with asyncio.timeout(SECONDS):
            outcomes = await attacked(sandbox, [one for one in ATTACKS if one.probe])
    except (OSError, TimeoutError) as error:
        return str(error) or "it did not answer in time"
    return "; ".join(
        f"{outcome.name}: {outcome.detail}" for outcome in outcomes if not outcome.stopped
    )
