"""The parts of docs/coming-from/agentfly.md work, and its counterparts exist."""

import re
from pathlib import Path

import pytest
import yaml

from agentfly_core.algorithms import NAMES
from agentfly_core.config.experiment import Settings
from agentfly_core.config.import_path import load
from agentfly_core.experiment import checks
from agentfly_core.records.timing import Timing
from agentfly_core.records.trajectory import Ending, Observation, Problem, Score
from agentfly_core.rewards.exact import exact
from agentfly_core.rl.kl import KLEstimator
from agentfly_core.runs.metrics import rollout_metrics
from agentfly_core.testing.episodes import play, rollout_spec, score_of
from agentfly_core.tools.calculator import calculator
from tests.support.project import ROOT

PAGE = (ROOT / "docs/coming-from/agentfly.md").read_text()
HERE = [row.split(" | ")[-1] for row in PAGE.splitlines() if row.startswith("| ")]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory, with the Python file of the page."""
    (tmp_path / "my_port.py").write_text(re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)[1])
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


async def test_the_parts_of_the_page_play_together(folder):
    problem = Problem("p", "Empty it.", {"fruit": ["pear"], "answer": "done"})
    spec = rollout_spec(
        load("my_port:take"), load("my_port:finish"), rewards=[load("my_port:emptied")]
    )
    replies = ["<take fruit=fig>", "<take fruit=pear>", "<finish answer=done>"]
    played = await play(replies, problem=problem, spec=spec)
    assert (played.ending, played.answer) == (Ending.TERMINAL, "done")
    missing, taken, _ = played.observations
    assert missing == Observation("take", "There is no fig. There are: pear.", error=True)
    assert taken == Observation("take", "0 are left.")
    assert played.observed == {"emptied": Score(1.0, parts={"left": 0.0})}


def test_the_experiment_of_the_page_is_valid(folder):
    (folder / "pages.jsonl").write_bytes((ROOT / "data/raw/encyclopaedia.jsonl").read_bytes())
    Path("questions.jsonl").write_text('{"question": "Who wrote it?", "answer": "Anna Berg"}\n')
    block = re.search(r"```yaml\n(.*?)```", PAGE, re.DOTALL)[1]
    settings = Settings.model_validate(yaml.safe_load(block))
    checks.check(settings)


def test_every_part_that_the_page_names_is_there():
    cells = [names for cell in HERE for names in re.findall(r"`agentfly_core\.[^|]*", cell)]
    assert len(cells) >= 15
    for names in cells:
        module = ""
        for name in re.findall(r"`([\w.]+:\w+|[a-z_]+)`", names):
            module = name.partition(":")[0] if ":" in name else module
            assert load(name if ":" in name else f"{module}:{name}")


def test_settings_algorithms_and_penalties_of_the_page_exist():
    cells = "\n".join(HERE)
    for section, field in re.findall(r"`(rollout|agent)\.(\w+)`", cells):
        assert field in Settings.model_fields[section].annotation.model_fields
    algorithms = [
        name
        for line in re.findall(r"`algorithm: (.*)\|", cells)
        for name in re.findall(r"\w+", line)
    ]
    assert algorithms and set(algorithms) <= NAMES.keys()
    (kinds,) = re.findall(r"`kind: (.*)\|", cells)
    assert {*re.findall(r"\w+", kinds)} == {*KLEstimator.__args__}
    assert {"terminal", "max_turns", "max_model_len", "no_tool_calls"} <= {*Ending}


async def test_every_metric_that_the_page_names_is_measured():
    played = await play(["<calculator expression=41+58>", "99"], calculator)
    scored, timing = await score_of(played, exact), Timing(played.id, ())
    measured = rollout_metrics([played], [scored], [timing], "exact", ["calculator"])
    documented = re.findall(r"`((?:rollout|reward_extra)/\S+)`", "\n".join(HERE))
    names = {name.replace("<name>", "calculator").replace("<k>", "exact") for name in documented}
    assert len(names) == 11
    assert names <= measured.keys()
