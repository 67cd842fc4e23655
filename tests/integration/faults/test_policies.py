"""Any policy can be evaluated: the start of a run, one of its steps, a model's folder."""

import json
import shutil
from pathlib import Path

import pytest

from tests.support.killed_commands import RUN, TINY, Lives, Whole


@pytest.mark.long
def test_success_does_not_depend_on_the_name_of_a_policy(
    tmp_path: Path, lives: Lives, whole: Whole
) -> None:
    for folder in ("artifacts", "runs"):
        shutil.copytree(whole.folder / folder, tmp_path / folder)
    shutil.copytree(whole.folder / RUN / "steps/000003/policy", tmp_path / "exported")
    summary = json.loads((tmp_path / RUN / "summary.json").read_text())
    for policy, when, stored in (
        ("run:demo@0", "before", True),
        ("run:demo@3", "after", True),
        ("exported", "after", False),
    ):
        end = lives.run(tmp_path, "evaluate", TINY, "--policy", policy)
        assert end.code == 0, end.printed
        low, high = summary[f"interval_{when}"]
        row = f"test {summary[f'success_{when}']:.1%} {low:.1%} to {high:.1%} 8"
        assert row in " ".join(end.printed.split())
        assert (end.moments == ()) == stored  # evaluations from the run are reused
