"""The tests of docs/how-to/test-parts.md pass on the tools of tools-and-rewards.md."""

import os
import re
import subprocess
import sys

from agentfly_core import testing
from tests.support.project import ROOT

PAGE = (ROOT / "docs/how-to/test-parts.md").read_text()


def python_blocks(page):
    return "\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL))


def test_the_tests_of_the_page_pass(tmp_path):
    (tmp_path / "my_quiz.py").write_text(
        python_blocks((ROOT / "docs/how-to/tools-and-rewards.md").read_text())
    )
    (tmp_path / "my_quiz_test.py").write_text(python_blocks(PAGE))
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        tmp_path,
        tmp_path,
    ]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert f"{PAGE.count('def test_')} passed" in done.stdout


def test_the_page_has_all_of_the_kit():
    assert {*re.findall(r"`(\w+)\(", PAGE)} == {*testing.__all__}
