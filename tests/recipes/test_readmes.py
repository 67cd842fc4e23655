"""The READMEs of the recipes, and the gallery that is made from them."""

import json
import re
import runpy
import shlex
from importlib import import_module

import pytest
import yaml

from agentfly_core.authoring.reward import Reward
from agentfly_core.authoring.tool import Tool
from agentfly_core.config import loading
from agentfly_core.experiment import checks
from agentfly_core.sandbox.backends import Unavailable
from flows.__main__ import main
from tests.support.project import ROOT

RECIPES = ROOT / "agentfly_core/recipes"
READMES = {path.parent.name: path.read_text() for path in sorted(RECIPES.glob("*/README.md"))}
NAMES = {folder: text.partition("\n")[0].removeprefix("# ") for folder, text in READMES.items()}
YAML = [
    (NAMES[folder], block)
    for folder, text in READMES.items()
    for block in re.findall(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
]


def section(text: str, heading: str) -> str:
    return text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def block(text: str) -> str:
    match = re.search(r"^```\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert match
    return match[1]


def listed_parts() -> list[tuple[str, str, str]]:
    """The recipe, module and name of each part: `("shop", "tools", "checkout")`."""
    rows = [
        (folder, *row)
        for folder, text in READMES.items()
        for row in re.findall(r"^\| `(\w+):(\w+)`(.*?) \|", section(text, "Parts"), re.MULTILINE)
    ]
    return [
        (folder, module, name)
        for folder, module, first, more in rows
        for name in (first, *re.findall(r"\w+", more))
    ]


EPISODES = {
    folder: block(section(text, "Episode"))
    for folder, text in READMES.items()
    if "\n```\nproblem " in section(text, "Episode")
}


def test_every_experiment_has_a_recipe_of_its_name():
    assert sorted(NAMES.values()) == sorted(loading.names(ROOT / "conf"))
    assert {folder: re.sub(r"\W", "_", name) for folder, name in NAMES.items()} == {
        folder: folder for folder in NAMES
    }


@pytest.mark.parametrize("folder", READMES)
def test_a_readme_has_purpose_episode_learning_and_commands(folder):
    headings = re.findall(r"^## (.*)$", READMES[folder], re.MULTILINE)
    assert headings[:3] == ["Episode", "Learning", "Commands"]
    learning = section(READMES[folder], "Learning")
    assert "→" in learning or re.match(r"\n(Not yet measured|No gain so far)", learning)
    commands = map(shlex.split, block(section(READMES[folder], "Commands")).splitlines())
    assert ["agentfly", "train", NAMES[folder]] in [words[:3] for words in commands]


def test_most_readmes_show_an_episode():
    assert READMES.keys() - EPISODES.keys() == {"qwen2_5_3b_math", "textworld"}


def test_the_gallery_is_made_from_the_readmes():
    page = runpy.run_path(str(ROOT / "docs/gallery.py"))["page"]()
    assert (ROOT / "docs/gallery.md").read_text() == page, "run python docs/gallery.py"
    assert all(f"| [`{name}`](" in page for name in NAMES.values())
    assert all(episode in page for episode in EPISODES.values())


@pytest.mark.parametrize(("name", "settings"), YAML, ids=[name for name, _ in YAML])
def test_the_settings_of_a_readme_are_valid(name, settings, monkeypatch):
    monkeypatch.chdir(ROOT)
    changes = [f"{key}={json.dumps(value)}" for key, value in yaml.safe_load(settings).items()]
    try:
        checks.check(loading.read(name, changes).settings)
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("folder", sorted({folder for folder, *_ in listed_parts()}))
def test_the_table_of_parts_names_every_part(folder):
    listed = {(module, name) for recipe, module, name in listed_parts() if recipe == folder}
    modules = [path.stem for path in (RECIPES / folder).glob("[a-z]*.py")]
    assert {module for module, _ in listed} == {*modules}
    for module in modules:
        defined = vars(import_module(f"agentfly_core.recipes.{folder}.{module}"))
        tools_and_rewards = {n for n, value in defined.items() if isinstance(value, Tool | Reward)}
        assert tools_and_rewards <= {name for home, name in listed if home == module}
        assert {name for home, name in listed if home == module} <= defined.keys()


def test_a_recipe_with_modules_lists_them():
    with_modules = {path.parent.name for path in RECIPES.glob("*/__init__.py")}
    assert {folder for folder, *_ in listed_parts()} == with_modules


@pytest.mark.long
@pytest.mark.parametrize("folder", EPISODES)
def test_the_commands_show_the_episode(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "80")
    play, show, *_ = block(section(READMES[folder], "Commands")).splitlines()
    for command in (play, show):
        capsys.readouterr()
        assert main([*shlex.split(command)[1:], "--store", str(tmp_path)]) == 0
    shown = "\n".join(line.rstrip() for line in capsys.readouterr().out.splitlines())
    assert EPISODES[folder] in f"{shown}\n"
