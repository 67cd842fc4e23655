"""docs/reference/settings.md and docs/reference/site.md have every setting, with its default."""

import json
import re

import pytest
import yaml
from pydantic_core import PydanticUndefined

from agentfly_core.config import evaluation, experiment, loading, parts
from agentfly_core.config.health_signs import Sign
from agentfly_core.config.promotion import Promotion
from agentfly_core.config.section import resumable
from agentfly_core.config.site import Endpoint, Site
from agentfly_core.experiment import checks
from tests.support.project import ROOT

PAGE = (ROOT / "docs/reference/settings.md").read_text() + (
    ROOT / "docs/reference/site.md"
).read_text()
EXPERIMENT, EVALUATION, SITE, ENDPOINTS = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
PLAIN = bool | int | float | str | None
SECTIONS = {
    "The experiment": experiment.Settings,
    "`nano`": parts.Nano,
    "`data`": experiment.Data,
    "`agent`": parts.AgentPart,
    "`rewards`": parts.RewardPart,
    "`environments`": parts.PoolSettings,
    "`warm_start`": experiment.WarmStart,
    "`adapter`": experiment.Adapter,
    "`update`": experiment.Update,
    "`rollout`": experiment.Rollout,
    "`evaluate`": evaluation.Evaluate,
    "`fork`": experiment.Fork,
    "`gates`": experiment.Gates,
    "`health`": Sign,
    "`promotion`": Promotion,
    "The site": Site,
    "`endpoints`": Endpoint,
}


def table(heading):
    """The defaults of a section's first table, by setting, as they are written."""
    text = re.search(
        rf"^##? {re.escape(heading)}\n(.*?)(?=^##? |\Z)", PAGE, re.DOTALL | re.MULTILINE
    )[1]
    rows = re.search(
        r"^\| setting \|.*?\n\|---.*?\n(.*?)(?:\n\n|\Z)", text, re.DOTALL | re.MULTILINE
    )[1]
    return dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", rows, re.MULTILINE))


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


@pytest.mark.parametrize(("heading", "kind"), SECTIONS.items(), ids=SECTIONS)
def test_every_setting_is_on_the_page_with_its_default(heading, kind):
    documented = table(heading)
    assert documented.keys() == kind.model_fields.keys()
    for name, field in kind.model_fields.items():
        if field.default is PydanticUndefined:
            assert field.default_factory or documented[name] == "must be given", name
        elif (match := re.fullmatch(r"`(.*)`", documented[name])) and isinstance(
            field.default, PLAIN
        ):
            assert yaml.safe_load(match[1]) == field.default, name


def test_the_page_lists_settings_that_may_change_on_resume():
    match = re.search(
        r"These may change when a run is continued: (.*?)\. All others", PAGE, re.DOTALL
    )[1]
    assert set(re.findall(r"`([\w.]+)`", match)) == set(resumable(experiment.Settings))


def test_every_link_from_page_to_page_leads_to_a_heading():
    for page in (ROOT / "docs").rglob("*.md"):
        for file, anchor in re.findall(r"\]\(([\w.]*\.md)?#([\w-]+)\)", page.read_text()):
            headings = re.findall(
                r"^#+ (.*)$", (page.parent / file if file else page).read_text(), re.MULTILINE
            )
            assert anchor in {
                re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings
            }, anchor
