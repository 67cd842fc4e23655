"""The examples of docs/reference/algorithms.md work."""

import pkgutil
import re
import sys
from pathlib import Path

import pytest
import yaml

from agentfly_core import algorithms
from agentfly_core.config import loading
from agentfly_core.experiment import checks
from agentfly_core.rl.batch import pack
from agentfly_core.testing.trajectories import trajectory, turn
from tests.support.experiments import TINY
from tests.support.generated_trajectories import earned
from tests.support.project import ROOT

PAGE = (ROOT / "docs/reference/algorithms.md").read_text()
RANKED, ABSOLUTE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
YAML = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A folder with the page's algorithms."""
    (tmp_path / "my_algorithm.py").write_text(RANKED)
    (tmp_path / "absolute.py").write_text(ABSOLUTE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for module in ("my_algorithm", "absolute"):  # of another test's folder
        monkeypatch.delitem(sys.modules, module, raising=False)
    return tmp_path


def settings_with(folder, text):
    (folder / "mine.yaml").write_text(yaml.safe_dump(yaml.safe_load(TINY) | yaml.safe_load(text)))
    return loading.read("mine.yaml").settings


@pytest.mark.parametrize("text", YAML, ids=range(len(YAML)))
def test_every_setting_of_the_page_is_valid(text, mine):
    checks.check(settings_with(mine, text))


def test_the_algorithm_of_the_page_gives_these_advantages(mine):
    group = [trajectory(turn([1], {3: -1.0})) for _ in range(4)]
    advantages = (
        settings_with(mine, YAML[-1])
        .algorithm.make()
        .estimate_advantages(earned(group, [3.0, 7.0, 3.0, 0.0]), pack(group))
    )
    assert advantages.advantages[:, 1].tolist() == [0.0, 0.75, 0.0, -0.75 * 0.5]


def test_an_algorithm_without_groups_may_play_a_problem_once(mine):
    once = "rollout: {problems: 8, group_size: 1}"
    checks.check(settings_with(mine, 'algorithm: {use: "absolute:Absolute"}\n' + once))
    with pytest.raises(ValueError, match="group_size is 1"):
        checks.check(settings_with(mine, YAML[-1] + once))


def test_every_algorithm_is_in_the_table_with_its_paper():
    rows = dict(
        re.findall(r"^\| `(\w+)` \| (\S*) ?\|", PAGE[: PAGE.index("## The settings")], re.MULTILINE)
    )
    assert rows.keys() - {"use"} == {
        module.name for module in pkgutil.iter_modules(algorithms.__path__)
    }
    for name, paper in list(rows.items())[1:]:
        source = (Path(algorithms.__file__).parent / f"{name}.py").read_text()
        assert all(number in source for number in re.findall(r"\d{4}\.\d{5}", paper)), name
