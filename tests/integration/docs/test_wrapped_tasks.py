"""The tasks of docs/how-to/existing-tasks.md are played by their oracle and at random."""

import json
import re
import shlex
import sys

import pytest

from flows.__main__ import main
from tests.support.project import ROOT

PAGE = (ROOT / "docs/how-to/existing-tasks.md").read_text()
TUTORIAL = (ROOT / "docs/tutorial/own-task.md").read_text()
LONGEST = {"my_adventure.py": 60}


def files(section):
    """The files of a section by their names."""
    return dict(
        re.findall(r"`(\w+\.\w+)`[^`]*?:\n\n```(?:python|yaml)\n(.*?)```", section, re.DOTALL)
    )


def code_lines(text):
    return sum(bool(line.strip()) for line in text.splitlines())


def in_folder(heading, tmp_path, monkeypatch):
    """The commands of a section, with its files in the working directory."""
    section = PAGE[PAGE.index(f"## {heading}") :].split("\n## ")[0]
    for name, text in files(section).items():
        (tmp_path / name).write_text(text)
        monkeypatch.delitem(sys.modules, name.removesuffix(".py"), raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (block,) = re.findall(r"```bash\n(.*?)```", section, re.DOTALL)
    return [shlex.split(line)[1:] for line in block.splitlines()]


def solved(words, capsys):
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)["success"]["share"]


def test_each_task_is_short():
    lengths = {n: code_lines(text) for n, text in files(PAGE).items() if n in LONGEST}
    assert lengths.keys() == LONGEST.keys()
    assert all(lengths[name] <= longest for name, longest in LONGEST.items())
    own, _, knows = map(code_lines, re.findall(r"```python\n(.*?)```", TUTORIAL, re.DOTALL))
    assert own + knows <= 28


@pytest.mark.long
def test_the_oracle_but_not_chance_wins_the_adventures(tmp_path, monkeypatch, capsys):
    pytest.importorskip("textworld")
    oracle, chance, look = in_folder("How do I wrap a game?", tmp_path, monkeypatch)
    assert solved(oracle, capsys) == pytest.approx(2 / 3)
    assert solved(chance, capsys) == 0.0
    assert main(look) == 0
    assert "Which do you mean" in capsys.readouterr().out
