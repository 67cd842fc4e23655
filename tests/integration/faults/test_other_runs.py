"""Use of other runs: episodes to imitate, and a policy to stay near."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from agentfly_core.store.store import Store
from tests.support.killed_commands import RUN, TINY, Lives, Whole


@pytest.mark.long
def test_a_runs_own_episodes_are_chosen_once_and_imitated(
    whole: Whole, lives: Lives, tmp_path: Path
) -> None:
    shutil.copytree(whole.folder, tmp_path, dirs_exist_ok=True)
    before = {*tmp_path.glob("artifacts/demonstrate/*")}
    choice = (
        "warm_start={demonstrations: 'run:demo@2', rounds: 1, settings: {threshold: 0.5, best: 1}}"
    )
    end = lives.run(tmp_path, "warm-start", TINY, choice)
    assert end.code == 0, end.printed
    (chosen,) = {*tmp_path.glob("artifacts/demonstrate/*")} - before
    episodes = pd.read_parquet(chosen / "trajectories.parquet")
    assert episodes["problem"].is_unique
    assert {*episodes["role"]} == {"demonstration"}
    assert (
        f"{RUN}/steps/000002/scored" in json.loads((chosen / "MANIFEST.json").read_text())["inputs"]
    )

    shutil.rmtree(tmp_path / RUN)
    again = lives.run(tmp_path, "warm-start", TINY, choice)
    assert again.printed.splitlines()[:2] == end.printed.splitlines()[:2], "its source may go"


def kl_to(reference: str, lives: Lives, folder: Path) -> float:
    """The divergence of the first step of the run `near` from a reference policy."""
    kl = f"algorithm={{use: grpo, kl: {{use: loss, weight: 1.0e-9, reference: '{reference}'}}}}"
    words = ("train", TINY, "--run", "near", kl, "update.epochs=1", "steps=1")
    end = lives.run(folder, *words)
    assert end.code == 0, end.printed
    metrics = json.loads((folder / "runs/near/steps/000001/metrics.json").read_text())
    return float(metrics["metrics"]["train/kl_reference"])


@pytest.mark.long
def test_a_run_stays_near_a_policy_of_another_run(
    whole: Whole, lives: Lives, tmp_path: Path
) -> None:
    shutil.copytree(whole.folder, tmp_path, dirs_exist_ok=True)
    assert kl_to("run:demo@3", lives, tmp_path) > 1e-6
    base = Store.at(str(tmp_path), tmp_path).artifact(f"{RUN}/steps/000003/policy")
    record = json.loads((tmp_path / "runs/near/run.json").read_text())
    assert record["reference"]["digest"] == base.digest


@pytest.mark.long
def test_a_run_stays_near_the_policy_it_starts_from(begun: Path, lives: Lives) -> None:
    assert kl_to("start", lives, begun) < 1e-9
