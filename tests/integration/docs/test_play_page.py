"""The commands of docs/how-to/play.md work unchanged, in order, with its own files."""

import io
import json
import re
import runpy
import shlex
import sys

import pytest

from flows.__main__ import main
from tests.support.project import ROOT

PAGE = (ROOT / "docs/how-to/play.md").read_text()
TUTORIAL = (ROOT / "docs/tutorial/own-task.md").read_text()
QUICKSTART = (ROOT / "conf/quickstart.yaml").read_text()


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def commands() -> list[list[str]]:
    shown = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
    return [shlex.split(line)[1:] for lines in shown for line in lines.splitlines()]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A project with the page's files and a quickstart of few problems."""
    (tmp_path / "conf").mkdir()
    few = QUICKSTART.replace("train: 4096", "train: 64").replace("episodes: 4096", "episodes: 64")
    (tmp_path / "conf/quickstart.yaml").write_text(few)
    parts, problems, oracle = blocks(TUTORIAL, "python")
    (tmp_path / "my_shop.py").write_text("\n\n".join([parts, oracle, *blocks(PAGE, "python")]))
    (tmp_path / "make_problems.py").write_text(problems)
    (tmp_path / "shop.yaml").write_text(blocks(TUTORIAL, "yaml")[0])
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "my_shop", raising=False)
    runpy.run_path("make_problems.py")
    return tmp_path


def test_the_commands_run_and_only_the_oracle_solves_all(folder, monkeypatch, capsys):
    for words in commands():
        monkeypatch.setattr(sys, "stdin", io.StringIO("What can you do?\n"))  # of the chat
        assert main(words) == 0, words
    capsys.readouterr()
    play = ["play", "shop.yaml", "model=nano", "--json", "-n", "40", "--policy"]
    assert main([*play, "my_shop:knows"]) == 0
    assert json.loads(capsys.readouterr().out)["success"]["share"] == 1.0
    assert main([*play, "my_shop:buys_the_first"]) == 0
    assert 0 < json.loads(capsys.readouterr().out)["success"]["share"] < 1


def test_the_output_on_the_page_matches_its_first_command(folder, capsys):
    first = commands()[0]
    assert main(first) == 0
    printed = re.sub(r"\S+ episodes/s", "N episodes/s", capsys.readouterr().out)
    shown = re.findall(r"```\n(oracle.*?)```", PAGE, re.DOTALL)[0]
    assert printed == re.sub(r"\S+ episodes/s", "N episodes/s", shown)
