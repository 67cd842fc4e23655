"""The examples of docs/reference/steps.md and metrics.md work."""

import re

import pytest
import yaml

from agentfly_core.config import loading
from agentfly_core.experiment import checks
from tests.support.experiments import TINY
from tests.support.project import ROOT

PAGES = [(ROOT / f"docs/reference/{name}.md").read_text() for name in ("steps", "metrics")]
YAML = re.findall(r"```yaml\n(.*?)```", "".join(PAGES), re.DOTALL)


def settings_with(folder, text, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "mine.yaml").write_text(
        yaml.safe_dump(yaml.safe_load(TINY) | {"rollout": {"problems": 1}} | yaml.safe_load(text))
    )
    return loading.read("mine.yaml", ["data.train=24"]).settings


@pytest.mark.parametrize("text", YAML, ids=range(len(YAML)))
def test_every_setting_of_the_page_is_valid(text, tmp_path, monkeypatch):
    checks.check(settings_with(tmp_path, text, monkeypatch))


def test_playing_ahead_without_a_correction_is_refused(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"corrects for .*older policy"):
        checks.check(
            settings_with(tmp_path, "rollout: {problems: 1, max_staleness: 1}", monkeypatch)
        )
