"""The README and its tutorial work as written."""

import re
import runpy
import shlex
import sys

import pytest

from agentfly_core.config import loading
from agentfly_core.experiment import checks
from flows.__main__ import main
from tests.support.project import ROOT

README = (ROOT / "README.md").read_text()
TUTORIAL = (ROOT / "docs/tutorial/own-task.md").read_text()


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """The working directory with the files of the tutorial."""
    code, problems, policy = blocks(TUTORIAL, "python")
    (tmp_path / "my_shop.py").write_text(f"{code}\n\n{policy}")
    (tmp_path / "make_problems.py").write_text(problems)
    (tmp_path / "shop.yaml").write_text(blocks(TUTORIAL, "yaml")[0])
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "my_shop", raising=False)
    return tmp_path


def test_the_tutorials_experiment_is_valid(shop):
    checks.check(loading.read("shop.yaml").settings)


def test_the_readme_shows_a_valid_experiment(shop):
    (shop / "short.yaml").write_text(blocks(README, "yaml")[0])
    checks.check(loading.read("short.yaml").settings)


def test_the_readme_has_the_tutorials_tool_and_reward():
    (short,), (complete, *_) = blocks(README, "python"), blocks(TUTORIAL, "python")
    shown = [line for line in short.splitlines() if line]
    assert [line for line in shown if line not in complete.splitlines()] == []


def test_the_readme_is_short():
    assert len(README.split()) <= 900


def test_the_tutorial_trains_on_a_laptop(shop):
    runpy.run_path("make_problems.py")
    (command,) = re.findall(r"^agentfly train shop.yaml (.*\\\n.*)$", TUTORIAL, re.MULTILINE)
    settings = loading.read("shop.yaml", shlex.split(command.replace("\\\n", ""))).settings
    checks.check(settings)
    checks.check_beginning(settings)


def test_the_tutorials_script_solves_all_problems(shop, capsys):
    runpy.run_path("make_problems.py")
    row = (shop / "problems.jsonl").read_text().partition("\n")[0]
    assert f"A row looks like `{row}`" in TUTORIAL
    (words,) = [
        line.split("#")[0] for line in TUTORIAL.splitlines() if "my_shop:knows     #" in line
    ]
    assert main([*shlex.split(words)[1:], "model=nano:calculator"]) == 0
    assert "solved 100.0%" in capsys.readouterr().out
