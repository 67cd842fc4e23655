"""The script of docs/reference/python.md runs as shown, with a smaller experiment."""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agentfly_core.pipeline.loop import library
from tests.support.project import ROOT

PAGE = (ROOT / "docs/reference/python.md").read_text()
WITHOUT = "import sys\nsys.modules |= {'prefect': None, 'mlflow': None}  # importing them fails\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with the smallest `quickstart` experiment that has every stage."""
    (tmp_path / "conf").mkdir()
    shutil.copy(ROOT / "tests/integration/faults/tiny.yaml", tmp_path / "conf/quickstart.yaml")
    return tmp_path


def run(folder: Path, code: str) -> str:
    env = {
        **os.environ,
        "AGENTFLY_SAMPLER": "transformers",
        "DS_ACCELERATOR": "cpu",
        "AGENTFLY_DEVICE": "cpu",
        "PYTHONPATH": str(ROOT),
    }
    (folder / "script.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=folder, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_script_trains_without_prefect_and_mlflow(folder: Path) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    printed = run(folder, WITHOUT + block).splitlines()
    assert printed[0] == "['test.parquet', 'train.parquet', 'validation.parquet']"
    assert re.fullmatch(r"\d+% -> \d+% on 8 problems", printed[-1])
    (summary,) = (folder / "my_store/runs").glob("*/summary.json")
    assert json.loads(summary.read_text())["steps"] == 2


def test_the_functions_work_inside_a_running_event_loop(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)

    async def cell() -> list[float]:
        experiment = library.load_experiment("quickstart", store=str(folder / "store"))
        played = library.play(experiment, "oracle", episodes=2)
        return [score.rewards["exact"] for score in played.scores]

    assert asyncio.run(cell()) == [1.0, 1.0]


def test_the_page_has_all_functions_of_the_library() -> None:
    shown = {*re.findall(r"^\| `(\w+)\(", PAGE, re.MULTILINE)}
    assert shown == {"evaluate", "load_experiment", "play", "prepare", "produce", "train"}
