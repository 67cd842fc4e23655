"""The examples of docs/reference/settings.md and site.md are valid."""

import json
import re

import pytest

from agentfly_core.config import loading
from agentfly_core.experiment import checks
from tests.support.project import ROOT

PAGE = (ROOT / "docs/reference/settings.md").read_text() + (
    ROOT / "docs/reference/site.md"
).read_text()
EXPERIMENT, EVALUATION, SITE, ENDPOINTS = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("section", ["", EVALUATION])
def test_the_experiment_of_the_page_can_be_trained(section, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [{"question": f"{number}?", "answer": "1", "kind": "a"} for number in range(600)]
    (tmp_path / "hard.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "sums.yaml").write_text(EXPERIMENT + section)
    checks.check(loading.read("sums.yaml").settings)


def test_the_sites_of_the_page_are_valid(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf/site").mkdir(parents=True)
    (tmp_path / "conf/site/big.yaml").write_text(SITE)
    (tmp_path / "conf/site/local.yaml").write_text(ENDPOINTS)
    assert loading.site("big").ranks == 2
    assert loading.site("local").endpoint("gpt").max_requests == 2000
