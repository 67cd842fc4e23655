"""What the README shows can be done."""

import json
import re
import sys

import pytest

from agentfly_core.config import loading
from agentfly_core.pipeline import checks
from flows.__main__ import main
from tests.support.project import ROOT

README = (ROOT / "README.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """The working directory with the README's shop."""
    (tmp_path / "my_shop.py").write_text("\n\n".join(blocks("python")))
    (tmp_path / "shop.yaml").write_text(blocks("yaml")[0])
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "my_shop", raising=False)
    return tmp_path


def test_the_shop_of_the_readme_is_a_valid_experiment(shop):
    checks.check(loading.read("shop.yaml").science)


def test_the_function_that_knows_the_shops_answers_solves_all(shop, capsys):
    rows = [
        {"question": f"Pens {pens}, ink {ink}.", "prices": {"pens": pens, "ink": ink}}
        for pens, ink in ((1, 2), (2, 1), (5, 3), (3, 5), (7, 8), (9, 4))
    ]
    (shop / "problems.jsonl").write_text("\n".join(map(json.dumps, rows)))
    small = ["model=nano:calculator", "template.show_tools=false", "rollout.problems=2"]
    small += ["data.train=2", "data.validation=2", "data.test=2"]
    assert main(["play", "shop.yaml", *small, "--policy", "my_shop:knows"]) == 0
    assert "solved 100.0%" in capsys.readouterr().out


@pytest.mark.parametrize(
    "command", sorted(set(re.findall(r"^agentfly (\w+)", README, re.MULTILINE)))
)
def test_every_command_of_the_readme_explains_itself(command, capsys):
    with pytest.raises(SystemExit) as end:
        main([command, "--help"])
    assert end.value.code == 0
    assert f"agentfly {command}" in capsys.readouterr().out
