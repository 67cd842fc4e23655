"""The vLLM server dies: it is started again with the current policy, and nothing finished is played twice."""

from __future__ import annotations

from collections import Counter

from lives import RUN, TRAIN, Lives

from agentfly_core.parquet import read_trajectories

VLLM = {"AGENTFLY_SAMPLER": "vllm", "AGENTFLY_VLLM_MEMORY_GIB": "0.125"}


def test_a_vllm_server_killed_amid_a_rollout_is_started_again_and_only_that_shard_is_played_again(begun, lives: Lives):
    end = lives.run(begun, *TRAIN, env=VLLM, at="rollout 2 5", of="sampler")
    assert end.code == 0, end.printed
    (log,) = begun.rglob("vllm.log")
    assert "--- start 2:" in log.read_text()
    assert "--- start 3:" not in log.read_text()
    played = Counter(moment for moment in end.moments if f"{RUN}/steps" in moment and "/rollout-" in moment)
    assert sorted(played.values()) == [1] * 6
    shards = sorted((begun / RUN / "steps").glob("*/rollout-*/trajectories.parquet"))
    assert len(shards) == 6
    for path in shards:
        spans = [span for trajectory in read_trajectories(path) for turn in trajectory.turns for span in turn.sampled]
        assert {span.policy_version for span in spans} == {int(path.parts[-3]) - 1}
