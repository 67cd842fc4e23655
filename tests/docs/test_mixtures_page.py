"""docs/how-to/mixtures.md describes experiments that can be run, and all settings of a task."""

import re

import yaml

from agentfly_core.config.experiment import Settings
from agentfly_core.config.tasks import TaskLimits, TaskSettings
from agentfly_core.experiment.checks import check
from tests.support.project import ROOT

PAGE = (ROOT / "docs/how-to/mixtures.md").read_text()


def test_the_experiment_of_the_page_divides_a_step_as_shown():
    block = re.search(r"```yaml\n(.*?)```", PAGE, re.DOTALL)[1]
    settings = Settings.model_validate(yaml.safe_load(block))
    check(settings)
    assert settings.quotas(24) == {"sums": 16, "shop": 8}


def test_every_setting_of_a_task_is_on_the_page():
    assert {*re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)} == TaskSettings.model_fields.keys()
    limits = re.search(r"^\| `agent` .*limits of its own: (.*) \|$", PAGE, re.MULTILINE)[1]
    assert {*re.findall(r"`(\w+)`", limits)} == TaskLimits.model_fields.keys()
