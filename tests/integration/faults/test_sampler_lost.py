"""The vLLM server or the run dies: both restart with the current policy; no work is repeated."""

from collections import Counter

import pytest

from agentfly_core.records.parquet import read_trajectories
from agentfly_core.store.store import Store
from tests.support.killed_commands import KILLED, RUN, TRAIN, Lives, digests, survivors
from tests.support.waiting import until

VLLM = {"AGENTFLY_SAMPLER": "vllm", "AGENTFLY_VLLM_MEMORY_GIB": "0.125"}


def test_a_killed_vllm_server_repeats_only_its_shard(begun, lives: Lives):
    end = lives.run(begun, *TRAIN, env=VLLM, at="rollout 2 5", of="sampler")
    assert end.code == 0, end.printed
    (log,) = begun.rglob("vllm.log")
    assert "--- start 2:" in log.read_text()
    assert "--- start 3:" not in log.read_text()
    played = Counter(
        moment for moment in end.moments if f"{RUN}/steps" in moment and "/rollout-" in moment
    )
    assert sorted(played.values()) == [1] * 6
    shards = sorted((begun / RUN / "steps").glob("*/rollout-*/trajectories.parquet"))
    assert len(shards) == 6
    for path in shards:
        spans = [
            span
            for trajectory in read_trajectories(path)
            for turn in trajectory.turns
            for span in turn.sampled
        ]
        assert {span.policy_version for span in spans} == {int(path.parts[-3]) - 1}


@pytest.mark.long
def test_a_run_killed_with_its_vllm_server_repeats_no_work(begun, lives: Lives):
    assert lives.run(begun, *TRAIN, env=VLLM, at="update 2 1").code == KILLED
    until(lambda: not survivors(begun))
    before = digests(begun)
    end = lives.run(begun, *TRAIN, env=VLLM)
    assert end.code == 0, end.printed
    assert {f"publish {name}" for name in before} & set(end.moments) == set()
    assert f"{RUN}/steps/000002/scored" in before
    assert {name: digest for name, digest in digests(begun).items() if name in before} == before
    store = Store.at(str(begun), begun)
    for step in (2, 3):
        policy = store.artifact(f"{RUN}/steps/{step - 1:06d}/policy").digest
        made = [
            store.get(f"{RUN}/steps/{step:06d}/{name}")
            for name in ("rollout-000", "rollout-001", "policy")
        ]
        assert [artifact.manifest["inputs"]["policy"] for artifact in made] == [policy] * 3
