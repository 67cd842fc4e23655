"""The examples and claims of docs/explanation/sandbox.md hold."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from agentfly_core.config import loading
from agentfly_core.experiment import checks
from agentfly_core.sandbox.attacks import ATTACKS
from agentfly_core.sandbox.guest.protocol import MIB, Limits, Status
from agentfly_core.sandbox.preflight import WHAT_TO_DO
from tests.support.project import ROOT

REST = """
model: nano:python
data: {use: "agentfly_core.datasets.powers:powers", train: 8, test: 8}
rewards: {"agentfly_core.rewards.exact:exact": 1.0}
rollout: {problems: 8}
steps: 1
"""
PAGE = (ROOT / "docs/explanation/sandbox.md").read_text()


@pytest.mark.usefixtures("sandbox")
@pytest.mark.parametrize("number", [0, 1])
def test_the_programs_of_the_page_run_as_they_stand_there(tmp_path: Path, number: int) -> None:
    program = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[number]
    (tmp_path / "page.py").write_text(program)
    done = subprocess.run(
        [sys.executable, tmp_path / "page.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.usefixtures("sandbox")
def test_the_settings_of_the_page_are_a_valid_experiments(tmp_path: Path) -> None:
    match = re.search(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert match
    (tmp_path / "page.yaml").write_text(match[1] + REST)
    checks.check(loading.read(str(tmp_path / "page.yaml")).settings)


def test_the_page_has_all_limits_statuses_and_remedies() -> None:
    limits = Limits()
    sizes = {"memory": limits.memory, "disk": limits.disk, "captured": limits.captured}
    expected = {name: f"{size // MIB} MB" for name, size in sizes.items()}
    expected |= {"wall": f"{limits.wall:g} s", "cpu": f"{limits.cpu} s"}
    expected |= {"processes": f"{limits.processes}", "inodes": f"{limits.inodes:,}"}
    rows = dict(re.findall(r"^\| `(\w+)` \| ([\d,]+(?: s| MB)?) \|", PAGE, re.MULTILINE))
    assert rows == expected
    assert [status for status in Status if f"`{status}`" not in PAGE] == []
    options = re.search(r"--cap-add.*?apparmor=unconfined", WHAT_TO_DO)
    assert options and options[0] in PAGE
    assert len(ATTACKS) == 23
