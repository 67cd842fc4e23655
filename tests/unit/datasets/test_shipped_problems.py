"""The file of problems that a clone has."""

import json
import re
import runpy
import subprocess
from pathlib import Path

import pytest

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.config import loading
from agentfly_core.datasets.demonstrations import calculator
from agentfly_core.datasets.files import read
from agentfly_core.records import dataset
from agentfly_core.records.trajectory import Problem
from agentfly_core.tools.calculator import evaluate, written
from tests.support.project import ROOT

FILE = ROOT / "data/raw/word-problems.jsonl"
PAGE = (ROOT / "data/README.md").read_text()


def test_the_stored_file_can_be_generated_again() -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "data"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert {"data/README.md", "data/raw/word-problems.jsonl", "data/word_problems.py"} <= set(
        tracked.split()
    )
    assert runpy.run_path(str(ROOT / "data/word_problems.py"))["text"]() == FILE.read_text()


def test_every_expression_has_the_stored_answer() -> None:
    problems = [row for _, row in read(FILE, ("expression", "answer")) if isinstance(row, Problem)]
    assert (
        len(problems)
        == FILE.read_text().count("\n")
        == len({problem.facts["expression"] for problem in problems})
    )
    for problem in problems:
        assert written(evaluate(problem.facts["expression"])) == problem.facts["answer"]
        for number in re.findall(r"\d+", problem.prompt):
            assert number in problem.facts["expression"]


async def test_a_demonstration_calculates_the_expression() -> None:
    problem = Problem(
        "7", "59 keys and 63 more: how many?", {"expression": "59+63", "answer": "122"}
    )
    policy = calculator([problem], seed=0, spoilt=0.0)
    first, last = [await policy(Conversation(problem, 0, turn, (), (), seed=0)) for turn in (0, 1)]
    assert '"expression": "59+63"' in first
    assert '"answer": "122"' in last


def test_the_experiment_reads_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    settings = loading.read("word-problems").settings
    dataset.prepare(settings.data, settings.data_seed, tmp_path, tmp_path / "quarantine.json")
    assert sorted(path.stem for path in tmp_path.glob("*.parquet")) == [
        "test",
        "train",
        "validation",
    ]


def test_the_docs_page_shows_the_first_row() -> None:
    [row] = re.findall(r"```json\n(.*)\n```", PAGE)
    assert json.loads(row) == json.loads(FILE.read_text().partition("\n")[0])
    for link in re.findall(r"\]\(([^)#]+)", PAGE):
        assert (ROOT / "data" / link).exists(), link
