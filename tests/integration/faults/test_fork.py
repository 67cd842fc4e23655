"""A fork with no other setting repeats the run it continues from bit for bit, killed or not."""

import json
import shutil
from pathlib import Path

import pytest

from tests.support.killed_commands import KILLED, RUN, Lives, Whole, digests


@pytest.mark.long
def test_a_killed_fork_ends_with_the_bytes_of_its_origin(
    tmp_path: Path, lives: Lives, whole: Whole
) -> None:
    for folder in ("artifacts", "runs"):
        shutil.copytree(whole.folder / folder, tmp_path / folder)
    command = ("fork", "demo@1", "--run", "forked")
    end = lives.run(tmp_path, *command, at="update 3 1")
    assert end.code == KILLED, end.printed
    end = lives.run(tmp_path, *command)
    assert end.code == 0, end.printed

    made = digests(tmp_path)
    steps = [name for name in made if name.startswith("runs/forked/steps/")]
    assert {name.split("/")[3] for name in steps} == {"000002", "000003"}
    for name in steps:
        assert made[name] == made[name.replace("forked", "demo")], name
    record = json.loads((tmp_path / "runs/forked/run.json").read_text())
    parent = record["parent"]
    assert (parent["run"], parent["uri"]) == ("demo", f"{RUN}/steps/000001/policy")
    assert parent["digest"] == made[f"{RUN}/steps/000001/policy"]
