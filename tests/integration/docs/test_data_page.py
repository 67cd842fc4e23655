"""docs/how-to/data.md describes experiments that can be run, and all settings of a task."""

import json
import re

import yaml

from agentfly_core.config.experiment import Settings
from agentfly_core.config.tasks import TaskLimits, TaskSettings
from agentfly_core.experiment.checks import check
from tests.support.project import ROOT

DATA = (ROOT / "docs/how-to/data.md").read_text()
PAGE = DATA[DATA.index("## How do I train on several tasks") :]


def test_the_experiment_of_the_page_divides_a_step_as_shown():
    block = re.search(r"```yaml\n(.*?)```", PAGE, re.DOTALL)[1]
    settings = Settings.model_validate(yaml.safe_load(block))
    check(settings)
    assert settings.quotas(24) == {"sums": 16, "shop": 8}


def test_every_setting_of_a_task_is_on_the_page():
    assert {*re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)} == TaskSettings.model_fields.keys()
    limits = re.search(r"^\| `agent` .*own limits: (.*) \|$", PAGE, re.MULTILINE)[1]
    assert {*re.findall(r"`(\w+)`", limits)} == TaskLimits.model_fields.keys()


def test_the_data_file_of_the_page_is_read(tmp_path, monkeypatch):
    block = re.search(r"```yaml\n(data.*?)```", DATA, re.DOTALL)[1]
    rows = [{"question": f"{number}?", "answer": "1"} for number in range(1250)]
    (tmp_path / "problems.jsonl").write_text("\n".join(map(json.dumps, rows)))
    monkeypatch.chdir(tmp_path)
    rest = {"model": "nano", "rewards": {"agentfly_core.rewards.exact:exact": 1.0}, "steps": 1}
    check(Settings.model_validate(yaml.safe_load(block) | rest))
