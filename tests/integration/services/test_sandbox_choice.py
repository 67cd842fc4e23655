"""The choice of a sandbox on this machine, and the cleanup when its owner dies."""

import subprocess
import sys

import psutil
import pytest

from agentfly_core.sandbox.backends import Unavailable
from agentfly_core.sandbox.cgroups import Cgroups
from agentfly_core.sandbox.guest.protocol import Status
from agentfly_core.sandbox.preflight import chosen
from agentfly_core.sandbox.running import run
from agentfly_core.system.service import SANDBOX
from agentfly_core.system.supervisor import die_with_parent
from tests.support.project import ROOT
from tests.support.sandbox_processes import IDLE, groups, until

pytestmark = [pytest.mark.service, pytest.mark.usefixtures("sandbox")]


async def test_the_next_sandbox_cleans_up_after_a_killed_owner() -> None:
    code = (
        "import asyncio; from agentfly_core.sandbox.running import run\n"
        "asyncio.run(run('pass')); print('ready', flush=True); "
        "asyncio.run(run('import time; time.sleep(9)'))"
    )
    owner = psutil.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, preexec_fn=die_with_parent
    )
    assert owner.stdout.readline() == b"ready\n"
    await until(lambda: len(owner.children(recursive=True)) >= IDLE + 1)
    below = owner.children(recursive=True)
    owner.kill()
    owner.communicate()
    await until(lambda: not any(process.is_running() for process in below))
    Cgroups.detect()
    assert groups(owner.pid) == []


def test_a_machine_without_a_sandbox_is_refused_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv(SANDBOX, "bubblewrap")
    with pytest.raises(Unavailable, match=r"bubblewrap.*user namespaces.*AGENTFLY_SANDBOX=unsafe"):
        chosen()


def test_forbidden_namespaces_are_refused_with_the_reason() -> None:
    forbid = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$0" -c "$1"'
    code = "from agentfly_core.sandbox.preflight import chosen; chosen()"
    command = ["unshare", "-Ur", "sh", "-c", forbid, sys.executable, code]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), SANDBOX: "forkserver"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (
        "No sandbox for model-written code works here (forkserver: [Errno 28] clone: No space"
        in done.stderr
    )


async def test_unsafe_execution_must_be_requested(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(SANDBOX, "unsafe")
    result = await run("import os; print(os.path.exists('main.py'))")
    assert (result.backend, result.stdout) == ("unsafe", "True\n")
    result = await run("import os, shutil; shutil.rmtree(os.getcwd())")
    assert result.status is Status.KILLED  # its doing, not our failure
    chosen().close()
    monkeypatch.setenv(SANDBOX, "unsave")
    with pytest.raises(ValueError, match="forkserver, bubblewrap, unsafe"):
        chosen()
