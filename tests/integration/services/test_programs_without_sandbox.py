"""Programs that cannot run in the sandbox are refused, with the reason."""

import socket

import pytest

from agentfly_core.agents.program import ProgramAgent
from agentfly_core.config import loading
from agentfly_core.experiment import checks
from agentfly_core.records.trajectory import Ending, Problem
from agentfly_core.sandbox.backends import Unavailable
from agentfly_core.sandbox.confined import isolates, listener
from agentfly_core.system.service import SANDBOX
from agentfly_core.testing.episodes import episode_specs, play_all, rollout_spec, saying, scripted
from tests.support.project import ROOT

pytestmark = [pytest.mark.service, pytest.mark.usefixtures("sandbox")]
PROBLEM = Problem("add-41-58", "41+58?", {"answer": "99"})


@pytest.mark.parametrize(
    ("command", "settings", "error"),
    [
        (("python", "a.py"), {"preload": ("openai",)}, "remove `preload` or `sandbox`"),
        (("node", "a.js"), {}, r"command must begin with python, got \['node', 'a.js'\]"),
    ],
)
def test_a_program_that_cannot_run_in_the_sandbox_is_refused(command, settings, error):
    with pytest.raises(ValueError, match=error):
        ProgramAgent(command, sandbox=True, **settings)


def test_an_experiment_without_a_sandbox_is_refused(monkeypatch):
    monkeypatch.setenv(SANDBOX, "bubblewrap")
    monkeypatch.setenv("PATH", "")
    agent = "agent={use: program, command: [python, a.py], sandbox: true}"
    settings = loading.read(str(ROOT / "conf/openai-program.yaml"), [agent]).settings
    with pytest.raises(OSError, match=r"No sandbox .*bubblewrap"):
        checks.check(settings)


def test_bubblewrap_is_refused(monkeypatch):
    class Other:
        backend, refused = type("B", (), {}), {"forkserver": "clone: Operation not permitted"}

    monkeypatch.setattr("agentfly_core.sandbox.confined.Bubblewrap", type)
    monkeypatch.setattr("agentfly_core.sandbox.confined.chosen", Other)
    with pytest.raises(Unavailable, match=r"forkserver: clone"):
        isolates()


@pytest.mark.parametrize(("message", "error"), [(b"unshare: no", "unshare: no"), (b"", "exited")])
async def test_a_sandbox_that_fails_is_a_failure_of_the_machine(message, error):
    ours, theirs = socket.socketpair()
    with ours:
        theirs.send(message)
        theirs.close()
        with pytest.raises(Unavailable, match=error):
            await listener(ours)


async def test_the_listener_of_a_sandbox_is_not_inherited():
    ours, theirs = socket.socketpair()
    with ours, theirs, socket.create_server(("127.0.0.1", 0)) as sent:
        socket.send_fds(theirs, [b"."], [sent.fileno()])
        with await listener(ours) as received:
            assert received.getsockname() == sent.getsockname()
            assert not received.get_inheritable()


async def test_a_missing_interpreter_is_named():
    spec = rollout_spec(agent=ProgramAgent(("python9.9", "a.py"), sandbox=True))
    (trajectory, *_), *_ = await play_all(episode_specs(PROBLEM), spec, scripted(saying("99")))
    assert trajectory.ending is Ending.FAILED
    assert "python9.9" in (trajectory.error or "")
