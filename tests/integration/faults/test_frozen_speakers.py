"""A run with a frozen speaker, the policy of another run, can be killed as any other."""

import shutil
from pathlib import Path

import pytest

from agentfly_core.records.parquet import EPISODES, read_trajectories
from tests.support.killed_commands import TINY, Lives, Whole, digests

SECOND = (
    *("train", TINY, "--run", "second", "model=run:demo@0", "warm_start=null", "steps=2"),
    *("agent.use=tests.support.critics:criticised", "agent.frozen.critic=run:demo@2"),
    "agent.max_model_len=300",
)


@pytest.mark.long
def test_a_killed_run_with_a_frozen_speaker_has_equal_bytes(
    lives: Lives, whole: Whole, tmp_path: Path
) -> None:
    calm, hit = tmp_path / "calm", tmp_path / "hit"
    for folder in (calm, hit):
        shutil.copytree(whole.folder, folder)
    end = lives.run(calm, *SECOND)
    assert end.code == 0, end.printed
    lives.survive(hit, SECOND, ("rollout 1 5", "update 2 1"))
    assert digests(hit) == digests(calm)
    played = read_trajectories(calm / "runs/second/steps/000001/rollout-000" / EPISODES)
    sampled = {
        (one.agent, one.policy, span.policy_version)
        for one in played
        for turn in one.turns
        for span in turn.sampled
    }
    assert sampled == {("criticised", "", 0), ("critic", "run:demo@2", 2)}
    shown = lives.run(calm, "show", "run:second", "--evaluation", "test", "--worst", "99")
    assert shown.code == 0, shown.printed
    assert "run:demo@2, frozen" in " ".join(shown.printed.split())
