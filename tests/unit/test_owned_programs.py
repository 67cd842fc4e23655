"""Processes of a killed test session end with it."""

import ast
import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from agentfly_core.system.supervisor import die_with_parent
from tests.support.project import ROOT

SESSION = """
import os, subprocess, sys
from pathlib import Path
import psutil, pytest
from agentfly_core.system.service import new_address
from tests.support.owned_programs import serving

SERVER = "import os, signal; os.fork(); print('up', flush=True); signal.pause()"

@pytest.fixture
def server(tmp_path):
    with serving([sys.executable, "-c", SERVER], new_address("server"), tmp_path / "log") as pid:
        while (tmp_path / "log").read_text().count("up") < 2:
            pass
        yield psutil.Process(pid)

def test_that_is_killed(server, tmp_path):
    from tests.support.project import Project
    command = Project(tmp_path).start("sleep", "600")
    print("\\nstarted", server.pid, server.children()[0].pid, command.pid, flush=True)
    sys.stdin.read()
"""


@pytest.mark.slow
def test_servers_and_commands_end_with_killed_tests(tmp_path: Path) -> None:
    (tmp_path / "test_session.py").write_text(SESSION)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-s",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        tmp_path,
        tmp_path,
    ]
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    with subprocess.Popen(command, cwd=tmp_path, env=env, stdin=-1, stdout=-1, text=True) as tests:
        assert tests.stdout
        line = next((line for line in tests.stdout if line.startswith("started")), "")
        started = [os.pidfd_open(int(pid)) for pid in line.split()[1:]]
        tests.kill()
    assert len(started) == 3
    for program in started:
        assert select.select([program], [], [], 60)[0], "it still runs"
        os.close(program)


def starts(path: Path) -> list[str]:
    """Lines that start programs without a pipe or a death signal, so they can outlive the file."""
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    places = []
    for call in calls:
        words = {word.arg: ast.unparse(word.value) for word in call.keywords}
        ends = words.get("preexec_fn") == die_with_parent.__name__ or words.get("stdin") in (
            "subprocess.PIPE",
            "-1",
        )
        if ast.unparse(call.func).endswith("Popen") and not ends:
            places.append(f"{path.name}:{call.lineno}")
    return places


@pytest.mark.parametrize(
    "path", sorted((ROOT / "tests").rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT))
)
def test_no_test_starts_a_program_that_can_outlive_it(path: Path) -> None:
    assert starts(path) == []
