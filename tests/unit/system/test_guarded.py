"""Processes with a guardian: the cause of their end."""

from pathlib import Path

import pytest

from agentfly_core.system.guarded import GuardedProcess

ENDS = {
    "os._exit(3)": "exit code 3",
    "os._exit(137)": "exit code 137",
    "os.kill(os.getpid(), signal.SIGKILL)": "SIGKILL",
    "os.kill(os.getpid(), signal.SIGSEGV)": "SIGSEGV",
    "os.kill(os.getpid(), signal.SIGUSR1)": "SIGUSR1",
}


@pytest.mark.parametrize(("end", "cause"), ENDS.items(), ids=ENDS.values())
def test_an_exit_code_is_not_mistaken_for_a_signal(end: str, cause: str, tmp_path: Path) -> None:
    (tmp_path / "ending.py").write_text(f"import os, signal\n{end}\n")
    process = GuardedProcess("ending", {"PYTHONPATH": str(tmp_path)})
    assert process.cause() == cause
