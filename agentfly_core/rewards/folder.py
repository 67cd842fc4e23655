"""Rewards for the text files in an episode's workspace."""

import json
import math
import secrets
from collections.abc import Mapping
from typing import Any

from agentfly_core.authoring.reward import reward
from agentfly_core.environments.workspace import Workspace
from agentfly_core.records.trajectory import Problem, Score
from agentfly_core.sandbox.guest.protocol import Limits, Status
from agentfly_core.sandbox.preflight import chosen
from agentfly_core.sandbox.running import run

MOST_SECONDS = 1000.0
"""The longest time limit of a check, in seconds.

With a longer limit, the check could exceed the reward's own time limit, and the episode would be
unscored.
"""
_NO_CHECK = "no check:"
_CHECK = f"""
import json, os, subprocess
with open("check.json") as file:
    nonce, script, by_exit_code = json.load(file)
os.remove("check.json")

def checked():
    for folder in ("work", "home", "logs/verifier"):
        os.makedirs(folder, exist_ok=True)
    if os.path.realpath("/app") != os.path.realpath("work"):
        return "{_NO_CHECK} there is no /app"
    settings = dict(os.environ, HOME=os.path.realpath("home"), TEST_DIR="/tests")
    # no module is imported from where a program stands, which may be the workspace
    settings.update(PYTHONSAFEPATH="1", PYTHONPATH="/tests")
    command = ["/bin/bash", "/tests/" + script]
    try:
        done = subprocess.run(command, cwd="/tests", env=settings, stdin=subprocess.DEVNULL)
    except OSError as error:
        return "{_NO_CHECK} %s" % error
    if by_exit_code or done.returncode < 0:  # killed, be it by a program of the workspace
        return float(done.returncode == 0)
    try:
        with open("logs/verifier/reward.txt") as file:
            return float(file.read())
    except (OSError, ValueError):
        return 0.0

verdict = checked()
with open("verdict.txt", "w") as file:
    file.write("%s %s" % (nonce, verdict))
"""


@reward
async def expected_files(workspace: Workspace, problem: Problem) -> Score:
    """1 if the workspace has exactly the files of `problem.facts["expected"]`, else 0.

    Line breaks at the end of a file are ignored. The partial score `wrong` is the number of wrong,
    missing and additional files.
    """
    expected = {name: text.rstrip("\n") for name, text in problem.facts["expected"].items()}
    left = {name: text.rstrip("\n") for name, text in workspace.files.items()}
    wrong = sum(expected.get(name) != left.get(name) for name in {*expected, *left})
    return Score(float(wrong == 0), parts={"wrong": float(wrong)})


@reward(timeout=1200.0, ready=chosen)
async def hidden_check(workspace: Workspace, problem: Problem) -> float:
    """The result of the problem's check (a hidden shell script), a number from 0 to 1.

    The check runs in a new sandbox with the files of the workspace. `problem.facts["check"]`
    describes the check. With the dataset `datasets.harbor`, it is for example

        {"files": {"test.sh": "..."}, "script": "test.sh", "by_exit_code": False, "seconds": 60.0}

    In the sandbox, the files of the check are in /tests, and the files of the workspace in /app.
    The script runs in /tests with an empty home folder, and Python imports nothing from /app. The
    script writes the reward to the file /logs/verifier/reward.txt. With `by_exit_code`, the file is
    ignored, and the reward is 1 if the script exits with 0. The reward is 0 if the script takes
    longer than `seconds` or writes no number from 0 to 1. Raises ValueError if `seconds` is more
    than MOST_SECONDS.
    """
    check: Mapping[str, Any] = problem.facts["check"]
    nonce, seconds = secrets.token_hex(16), float(check["seconds"])
    if not 0 < seconds <= MOST_SECONDS:
        raise ValueError(
            f"facts['check']['seconds'] is {seconds:g}, expected more than 0 and at most "
            f"{MOST_SECONDS:g}"
        )
    order = json.dumps([nonce, check["script"], check["by_exit_code"]])
    files = {f"work/{name}": text for name, text in workspace.files.items()}
    files |= {f"tests/{name}": text for name, text in check["files"].items()}
    files |= {"check.json": order}
    limits = Limits(wall=seconds, cpu=math.ceil(seconds))
    done = await run(_CHECK, files, limits=limits, collect=["verdict.txt"])
    signed, _, verdict = done.files.get("verdict.txt", b"").decode(errors="replace").partition(" ")
    if done.status is Status.UNAVAILABLE or (signed == nonce and verdict.startswith(_NO_CHECK)):
        raise RuntimeError(f"the sandbox failed: {verdict or done.stderr}")
    value = float(verdict) if signed == nonce else 0.0
    # the comparison is also false for nan
    return value if 0 <= value <= 1 else 0.0
