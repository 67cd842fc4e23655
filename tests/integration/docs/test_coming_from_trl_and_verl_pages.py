"""The pages for users of TRL and verl name settings that exist, and their examples are valid."""

import re
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from agentfly_core.config import loading
from agentfly_core.config.experiment import Settings
from agentfly_core.config.import_path import load
from agentfly_core.config.site import Site
from agentfly_core.experiment import checks
from agentfly_core.records.trajectory import Problem
from agentfly_core.testing.episodes import play, score_of
from tests.support.project import ROOT

PAGES = {name: (ROOT / f"docs/coming-from/{name}.md").read_text() for name in ("trl", "verl")}


def cells(page: str, header: str) -> list[str]:
    """The second column of the tables with this header."""
    tables = re.findall(rf"^\| .*{header} \|.*\n\|[-|]+\n((?:\|.*\n)+)", page, re.MULTILINE)
    return [row.split(" | ")[1] for table in tables for row in table.splitlines()]


@pytest.fixture(params=PAGES)
def page(request: pytest.FixtureRequest) -> str:
    return PAGES[request.param]


def test_every_setting_exists(page: str) -> None:
    sections = "|".join({name.partition(".")[0] for name in loading.settings()})
    named = re.findall(rf"`((?:{sections})(?:\.\w+)*)`", "\n".join(cells(page, r"\| here")))
    assert len(named) > 15
    assert [name for name in named if name not in loading.settings()] == []


def test_every_override_is_valid(page: str) -> None:
    overrides = re.findall(r"`([\w.]+=[^`]+)`", "\n".join(cells(page, r"\| here")))
    overrides += re.findall(r"`(algorithm\.aggregation=\{[^`]+)`", page)
    assert len(overrides) > 10
    for override in overrides:
        checks.check(loading.read(str(ROOT / "conf/quickstart.yaml"), [override]).settings)


def test_every_site_setting_exists(page: str) -> None:
    named = re.findall(r"`(\w+)`", "\n".join(cells(page, "site")))
    assert len(named) > 5
    assert {*named} <= Site.model_fields.keys()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory with the Python files and the data of the pages."""
    for page in PAGES.values():
        name = re.findall(r"`(my_\w+\.py)`:\n\n```python", page)[0]
        code = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
        (tmp_path / name).write_text(code)
        monkeypatch.delitem(sys.modules, name.removesuffix(".py"), raising=False)
    (tmp_path / "sums.jsonl").write_text('{"prompt": "What is 12*34?", "answer": "408"}\n')
    row = {
        "prompt": [{"role": "user", "content": "What is 12*34?"}],
        "reward_model": {"style": "rule", "ground_truth": "408"},
    }
    for name in ("train", "test"):
        pq.write_table(pa.Table.from_pylist([row]), tmp_path / f"{name}.parquet")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_the_experiments_are_valid(folder: Path, page: str) -> None:
    block = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)[0]
    checks.check(Settings.model_validate(yaml.safe_load(block)))


async def test_the_reward_for_trl_scores_an_episode_with_the_tool(folder: Path) -> None:
    problem = Problem("p", "What is 12*34?", {"answer": "408"})
    multiply, correct = load("my_sums:multiply"), load("my_sums:correct")
    played = await play(["<multiply a=12 b=34>", "It is 408."], multiply, problem=problem)
    assert (await score_of(played, correct)).reward == 1.0


@pytest.mark.parametrize(("answer", "reward"), [("#### 1,408", 1.0), ("1408", 0.0)])
async def test_the_reward_for_verl_reads_the_marked_answer(
    folder: Path, answer: str, reward: float
) -> None:
    problem = Problem("p", "How many?", {"reward_model": {"ground_truth": "1408"}})
    played = await play([answer], problem=problem)
    assert (await score_of(played, load("my_gsm8k:gsm8k"))).reward == reward
