"""Workers die, alone, together and with their session; runs end with the bytes of `workers: 0`."""

import random
from pathlib import Path

import pytest

from agentfly_core.records.parquet import EPISODES, read_trajectories
from tests.support.killed_commands import (
    KILLED,
    TRAIN,
    Lives,
    Whole,
    digests,
    ledger,
    summary,
    survivors,
)
from tests.support.waiting import until

VLLM = {"AGENTFLY_SAMPLER": "vllm", "AGENTFLY_VLLM_MEMORY_GIB": "0.125"}
ONE, TWO = {"AGENTFLY_WORKERS": "1"}, {"AGENTFLY_WORKERS": "2"}


def assert_same(folder: Path, whole: Whole) -> None:
    assert digests(folder) == digests(whole.folder)
    assert ledger(folder).equals(ledger(whole.folder))
    assert summary(folder) == summary(whole.folder)
    assert not survivors(folder)


def deaths(folder: Path) -> list[int]:
    """How often each worker was killed."""
    logs = sorted(folder.rglob("worker-*.log"))
    return [log.read_text().count("ended: SIGKILL\n") for log in logs]


@pytest.mark.parametrize(
    "moments",
    [
        pytest.param(["rollout 2 8"], id="one moment"),
        pytest.param(["rollout 1 2", "update 3 1"], id="two moments", marks=pytest.mark.long),
    ],
)
def test_a_killed_worker_leaves_equal_bytes(
    begun: Path, lives: Lives, whole: Whole, moments: list[str]
) -> None:
    end = lives.run(begun, *TRAIN, env=ONE, at=moments, of="workers")
    assert end.code == 0, end.printed
    assert deaths(begun) == [len(moments)]
    assert_same(begun, whole)


@pytest.mark.long
def test_two_workers_killed_at_once_leave_equal_bytes(
    begun: Path, lives: Lives, whole: Whole
) -> None:
    end = lives.run(begun, *TRAIN, env=TWO, at="rollout 2 3", of="workers")
    assert end.code == 0, end.printed
    assert deaths(begun) == [1, 1]
    assert_same(begun, whole)


@pytest.mark.long
def test_a_session_killed_with_its_worker_leaves_equal_bytes(
    begun: Path, lives: Lives, whole: Whole
) -> None:
    end = lives.run(begun, *TRAIN, env=ONE, at="rollout 2 3")
    assert end.code == KILLED, end.printed
    until(lambda: not survivors(begun))
    end = lives.run(begun, *TRAIN, env=TWO)
    assert end.code == 0, end.printed
    assert_same(begun, whole)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
def test_workers_killed_at_random_moments_leave_equal_bytes(
    begun: Path, lives: Lives, whole: Whole, seed: int
) -> None:
    """Three moments each, one a step, since a shard is played at most three times."""
    draw = random.Random(seed)
    moments = [f"rollout {step} {draw.randint(1, 8)}" for step in (1, 2, 3)]
    env = draw.choice([ONE, TWO])
    end = lives.run(begun, *TRAIN, env=env, at=moments, of="workers")
    assert end.code == 0, end.printed
    assert max(deaths(begun)) == len(moments)  # a worker without a job is replaced by the next one
    assert_same(begun, whole)


@pytest.mark.long
def test_two_workers_share_a_vllm_server(begun: Path, lives: Lives, whole: Whole) -> None:
    """vLLM's rounding depends on its batches, so the bytes of replies are not compared."""
    end = lives.run(begun, *TRAIN, env={**TWO, **VLLM})
    assert end.code == 0, end.printed
    assert len([*begun.rglob("worker-*.log")]) == 2
    for step in (1, 2, 3):
        shards = [*begun.glob(f"runs/demo/steps/{step:06d}/rollout-*/{EPISODES}")]
        episodes = [one for shard in shards for one in read_trajectories(shard)]
        spans = [span for one in episodes for turn in one.turns for span in turn.sampled]
        assert len(shards) == 2
        assert {span.policy_version for span in spans} == {step - 1}
    assert ledger(begun)["problem"].equals(ledger(whole.folder)["problem"])
    assert not survivors(begun)
