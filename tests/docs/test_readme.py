"""What the README shows can be done."""

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


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """The working directory with the README's shop, and what writes its problems."""
    code, problems, policy = blocks("python")
    (tmp_path / "my_shop.py").write_text(f"{code}\n\n{policy}")
    (tmp_path / "make_problems.py").write_text(problems)
    (tmp_path / "shop.yaml").write_text(blocks("yaml")[0])
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "my_shop", raising=False)
    return tmp_path


def test_the_shop_of_the_readme_is_a_valid_experiment(shop):
    checks.check(loading.read("shop.yaml").settings)


def test_the_shop_of_the_readme_can_be_trained_on_a_laptop(shop):
    runpy.run_path("make_problems.py")
    (command,) = re.findall(r"^agentfly train shop.yaml (.*\\\n.*)$", README, re.MULTILINE)
    settings = loading.read("shop.yaml", shlex.split(command.replace("\\\n", ""))).settings
    checks.check(settings)
    checks.check_beginning(settings)


def test_the_function_that_knows_the_shops_answers_solves_all(shop, capsys):
    runpy.run_path("make_problems.py")
    row = (shop / "problems.jsonl").read_text().partition("\n")[0]
    assert f"A row looks like `{row}`" in README
    (words,) = [line.split("#")[0] for line in README.splitlines() if "my_shop:knows     #" in line]
    assert main([*shlex.split(words)[1:], "model=nano:calculator"]) == 0
    assert "solved 100.0%" in capsys.readouterr().out


@pytest.mark.parametrize(
    "command", sorted(set(re.findall(r"^agentfly (\w+)", README, re.MULTILINE)))
)
def test_every_command_of_the_readme_explains_itself(command, capsys):
    assert main([command, "--help"]) == 0
    assert f"agentfly {command}" in capsys.readouterr().out
