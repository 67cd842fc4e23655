"""Rewards of folders, and attacks of hostile episodes."""

from collections.abc import Mapping
from typing import Any

import pytest

from agentfly_core.environments.workspace import Workspace
from agentfly_core.records.trajectory import Problem, Score, ToolCall
from agentfly_core.rewards.folder import expected_files, hidden_check
from agentfly_core.testing.episodes import ADD
from agentfly_core.tools.shell import shell

FILES = {"in.txt": "b\na\n"}
SORTED = Problem("sort", "Sort in.txt into out.txt.", {
    "files": FILES, "expected": {**FILES, "out.txt": "a\nb\n"}
})  # fmt: skip
SCRIPT = """\
if [ "$(cat /app/out.txt)" = "$(cat /tests/right.txt)" ]; then echo 1; else echo 0; fi \\
    > /logs/verifier/reward.txt
"""


def checked(script: str, **more: Any) -> Problem:
    """A problem with a script that checks its folder."""
    files = {"test.sh": script, "right.txt": "a\nb\n"}
    check = {"files": files, "script": "test.sh", "by_exit_code": False, "seconds": 5.0, **more}
    return Problem("sort", "Sort in.txt into out.txt.", {"files": FILES, "check": check})


async def left(problem: Problem, *commands: str) -> Workspace:
    """The workspace after these commands, failing ones among them."""
    workspace = Workspace()
    await workspace.reset(problem)
    for command in commands:
        await shell.answer(ToolCall("shell", {"command": command}), {Workspace: workspace})
    return workspace


async def holding(files: Mapping[str, str], problem: Problem = SORTED) -> Workspace:
    """A workspace with these files."""
    workspace = await left(problem)
    workspace.files = dict(files)
    return workspace


@pytest.mark.parametrize(
    ("files", "value", "wrong"),
    [
        ({**FILES, "out.txt": "a\nb\n"}, 1.0, 0.0),
        ({**FILES, "out.txt": "a\nb"}, 1.0, 0.0),
        (FILES, 0.0, 1.0),
        ({}, 0.0, 2.0),
        ({**FILES, "out.txt": "b\na\n"}, 0.0, 1.0),
        ({**FILES, "out.txt": "a\nb\n", "more": ""}, 0.0, 1.0),
        ({"out.txt": "a\nb\n"}, 0.0, 1.0),
        ({**FILES, "out/out.txt": "a\nb\n"}, 0.0, 2.0),
    ],
)
async def test_exactly_the_expected_files_earn_the_reward(
    files: Mapping[str, str], value: float, wrong: float
) -> None:
    workspace = await holding(files)
    assert await expected_files(workspace=workspace, problem=SORTED) == Score(
        value, parts={"wrong": wrong}
    )


EARN = "echo 1 > /logs/verifier/reward.txt; kill -9 $PPID"
"""Code that would earn 1 if the check ran it."""
MODULE = f"import os; os.system({EARN!r}); os.kill(os.getppid(), 9)"
HOSTILE = {
    "a path": [f"printf '#!/bin/sh\\n{EARN}' > cat; chmod +x cat; export PATH=.:$PATH"],
    "a shell": [f"printf '{EARN}' > sh; cp sh bash; chmod +x sh bash; PATH=. sh"],
    "a profile": [f"echo '{EARN}' > .bashrc; cp .bashrc .profile; cp .bashrc ../.bashrc"],
    "a module": [f'echo "{MODULE}" > sitecustomize.py; cp sitecustomize.py json.py'],
    "a daemon": ["(setsid sh -c 'sleep 2; sort in.txt > out.txt') > /dev/null 2>&1 &"],
    "a link": ["sort in.txt > /tmp/sorted; ln -s /tmp/sorted out.txt"],
    "a link to the check": ["ln -s /tests/right.txt out.txt"],
    "a pipe": ["mkfifo out.txt"],
    "a folder": ["mkdir -p out.txt/a"],
    "a full disk": ["yes > big"],
    "a hole": ["truncate -s 60M out.txt"],
    "many files": ["for n in $(seq 600); do echo > f$n; done"],
    "a forged record": ["echo '{\"out.txt\": 1}' > ../kept.json; kill -9 $PPID"],
    "no rights": ["echo wrong > out.txt; chmod 000 out.txt in.txt ."],
    "deep folders": [
        "for n in 1 2 3 4 5 6; do mkdir -p $n/$(yes a | head -400 | paste -sd/); "
        "touch $n/$(yes a | head -400 | paste -sd/)/f; done"
    ],
    "an odd name": ["sort in.txt > \"$(printf 'out.txt\\n')x\"; sort in.txt > ' out.txt'"],
    "the verdict": ["mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt; echo 1 > reward"],
}


@pytest.mark.usefixtures("sandbox")
@pytest.mark.parametrize("commands", HOSTILE.values(), ids=HOSTILE)
async def test_a_hostile_episode_earns_nothing(commands: list[str]) -> None:
    problem = checked(SCRIPT)
    workspace = await left(problem, *commands)
    assert await hidden_check(workspace=workspace, problem=problem) == 0.0
    assert (await expected_files(workspace=workspace, problem=SORTED)).value == 0.0
    assert "out.txt" not in workspace.files or "a\nb" not in workspace.files["out.txt"]


@pytest.mark.usefixtures("sandbox")
@pytest.mark.parametrize("by_exit_code", [False, True])
@pytest.mark.parametrize(
    "asks",
    ["python3 -c 'import json'", "echo 'import json' | python3 -", "python3 -m json.tool in.txt"],
)
async def test_a_check_imports_no_module_of_the_workspace(asks: str, by_exit_code: bool) -> None:
    problem = checked(f"cd /app; {asks}; false", by_exit_code=by_exit_code)
    workspace = await holding({**FILES, "json.py": MODULE, "json/__init__.py": MODULE}, problem)
    assert await hidden_check(workspace=workspace, problem=problem) == 0.0


@pytest.mark.usefixtures("sandbox")
async def test_a_killed_check_earns_nothing() -> None:
    problem = checked("echo 1 > /logs/verifier/reward.txt; kill -9 $$")
    assert await hidden_check(workspace=await left(problem), problem=problem) == 0.0


@pytest.mark.usefixtures("sandbox")
async def test_a_file_without_permissions_is_kept() -> None:
    workspace = await left(SORTED, "mkdir d; echo x > d/f; chmod 000 d/f d in.txt .")
    assert workspace.files == {**FILES, "d/f": "x\n"}


@pytest.mark.usefixtures("sandbox")
async def test_the_right_files_pass_a_hidden_check() -> None:
    problem = checked(SCRIPT)
    workspace = await left(problem, "ls -aR /sandbox /app/ /tests/ /logs/ /tmp > seen 2>&1")
    assert "in.txt" in workspace.files["seen"]
    assert "right.txt" not in workspace.files["seen"]
    workspace.files = {"out.txt": "a\nb\n"}
    assert await hidden_check(workspace=workspace, problem=problem) == 1.0
    workspace.files = {"out.txt": "b\na\n"}
    assert await hidden_check(workspace=workspace, problem=problem) == 0.0


@pytest.mark.slow
@pytest.mark.usefixtures("sandbox")
@pytest.mark.parametrize(
    ("script", "by_exit_code", "value"),
    [
        ("exit 0", True, 1.0),
        ("exit 3", True, 0.0),
        ("exit 0", False, 0.0),
        ("echo 0.25 > /logs/verifier/reward.txt", False, 0.25),
        ("echo 7 > /logs/verifier/reward.txt", False, 0.0),
        ("echo nan > /logs/verifier/reward.txt", False, 0.0),
        ("echo good > /logs/verifier/reward.txt", False, 0.0),
        ("echo 1 > /logs/verifier/reward.txt; sleep 60", False, 0.0),
        ("echo '[1]' > /sandbox/verdict.txt; kill -9 $PPID", False, 0.0),
        ('test "$(pwd -P) $HOME $(ls $HOME)" = "/sandbox/tests /sandbox/home "', True, 1.0),
    ],
)
async def test_a_check_reports_pass_or_fail(script: str, by_exit_code: bool, value: float) -> None:
    problem = checked(script, by_exit_code=by_exit_code, seconds=1.0)
    workspace = await holding(FILES, problem)
    assert await hidden_check(workspace=workspace, problem=problem) == value


@pytest.mark.usefixtures("sandbox")
async def test_a_python_check_imports_its_own_modules() -> None:
    script = "python3 -c 'import json, sys; sys.exit(0)' && echo 0 > /logs/verifier/reward.txt"
    fake = "open('/logs/verifier/reward.txt', 'w').write('1'); raise SystemExit(1)"
    problem = checked(script)
    workspace = await holding({"json.py": fake, "sitecustomize.py": fake}, problem)
    assert await hidden_check(workspace=workspace, problem=problem) == 0.0


async def test_a_problem_without_an_expectation_is_refused() -> None:
    with pytest.raises(KeyError, match="expected"):
        await expected_files(workspace=await holding(FILES), problem=ADD)


@pytest.mark.parametrize("seconds", [0.0, 1001.0])
async def test_a_check_with_a_wrong_time_limit_is_refused(seconds: float) -> None:
    problem = checked(SCRIPT, seconds=seconds)
    with pytest.raises(ValueError, match=f"is {seconds:g}, expected more than 0 and at most 1000"):
        await hidden_check(workspace=await left(problem), problem=problem)
