"""What the README shows can be done."""

import re

import pytest

from agentfly_core.config import loading
from agentfly_core.pipeline import checks
from flows.__main__ import main
from tests.support.project import ROOT

README = (ROOT / "README.md").read_text()


def block(language):
    return re.search(rf"```{language}\n(.*?)```", README, re.DOTALL)[1]


def test_the_shop_of_the_readme_is_a_valid_experiment(tmp_path, monkeypatch):
    (tmp_path / "my_shop.py").write_text(block("python"))
    (tmp_path / "shop.yaml").write_text(block("yaml"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    checks.check(loading.read("shop.yaml").science)


@pytest.mark.parametrize(
    "command", sorted(set(re.findall(r"^agentfly (\w+)", README, re.MULTILINE)))
)
def test_every_command_of_the_readme_explains_itself(command, capsys):
    with pytest.raises(SystemExit) as end:
        main([command, "--help"])
    assert end.value.code == 0
    assert f"agentfly {command}" in capsys.readouterr().out
