"""The oracle plays the episodes of the gallery."""

import re

import pytest

from flows.__main__ import main
from tests.support.project import ROOT

PAGE = (ROOT / "docs/gallery.md").read_text()
SECTIONS = dict(re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
EPISODES = {
    name: found[1]
    for name, section in SECTIONS.items()
    if (found := re.search(r"^```\n(.*?)^```$", section, re.MULTILINE | re.DOTALL))
}


def test_every_episode_is_of_a_ready_made_experiment():
    assert len(EPISODES) >= 12
    assert {*SECTIONS} == {*EPISODES} <= {path.stem for path in (ROOT / "conf").glob("*.yaml")}


@pytest.mark.long
@pytest.mark.parametrize("name", EPISODES)
def test_the_oracle_plays_the_episode_of_the_page(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "80")
    store = ["--store", str(tmp_path)]
    assert main(["play", name, "--policy", "oracle", "--split", "test", "-n", "1", *store]) == 0
    capsys.readouterr()
    assert main(["show", f"play:{name}-1", *store]) == 0
    shown = "\n".join(line.rstrip() for line in capsys.readouterr().out.splitlines())
    assert EPISODES[name] in f"{shown}\n"
