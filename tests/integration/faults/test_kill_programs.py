"""Kills of a program, and of the worker, flow or sampler of a run with programs. All programs end,
and bytes are equal where the sampler is exact.
"""

import sys
from pathlib import Path

import psutil
import pytest

from agentfly_core.records.parquet import EPISODES, read_trajectories
from tests.support.killed_commands import (
    RUN,
    TRAIN,
    Lives,
    Whole,
    digests,
    ledger,
    survivors,
)
from tests.support.processes import command
from tests.support.project import ROOT
from tests.support.waiting import until

PROGRAM = ROOT / "tests/support/playing_program.py"
DEATH = "DEATH_OF_A_PROGRAM"
WORDS = (
    *TRAIN,
    f"agent={{use: program, command: ['{sys.executable}', '{PROGRAM}'], environment: [{DEATH}], "
    "max_turns: 2, max_tokens: 16, max_model_len: 256}",
    "tools=[]",
    "warm_start=null",
    "steps=2",
)
WORKER = {"AGENTFLY_WORKERS": "1"}
VLLM = {"AGENTFLY_SAMPLER": "vllm", "AGENTFLY_VLLM_MEMORY_GIB": "0.125"}


@pytest.fixture(scope="module")
def calm(lives: Lives, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """The uninterrupted run with programs."""
    folder = tmp_path_factory.mktemp("programs")
    end = lives.run(folder, *WORDS)
    assert end.code == 0, end.printed
    shards = [*(folder / RUN / "steps").glob(f"*/rollout-*/{EPISODES}")]
    played = [one for shard in shards for one in read_trajectories(shard)]
    assert [(one.agent, one.error, len(one.turns)) for one in played] == [("program", None, 2)] * 16
    return Whole(folder, end)


def programs() -> list[str]:
    """The commands of the programs that still run."""
    return [one for one in map(command, psutil.process_iter()) if str(PROGRAM) in one]


def assert_same(folder: Path, calm: Whole) -> None:
    assert digests(folder) == digests(calm.folder)
    assert ledger(folder).equals(ledger(calm.folder))
    until(lambda: not survivors(folder) and not programs())


@pytest.mark.long
def test_a_killed_program_is_played_again_with_equal_tokens(
    lives: Lives, calm: Whole, tmp_path: Path
) -> None:
    """It is killed in the first evaluation. Batches are other ones then, and so is the rounding."""
    end = lives.run(tmp_path, *WORDS, env={DEATH: str(tmp_path / "death")})
    assert end.code == 0, end.printed
    assert (tmp_path / "death").exists()
    ours, theirs = digests(tmp_path), digests(calm.folder)
    # the name of scores contains their key, which depends on the episodes
    others = [name for name in theirs if ours.get(name) != theirs[name]]
    assert {name.split("/")[1] for name in others} <= {"evaluate"}
    for name in [name for name in others if "/rollout-" in name]:
        pairs = zip(
            *(read_trajectories(at / name / EPISODES) for at in (tmp_path, calm.folder)),
            strict=True,
        )
        for one, other in pairs:
            assert [turn.reply for turn in one.turns] == [turn.reply for turn in other.turns]
            assert (one.answer, one.error) == (other.answer, None)


@pytest.mark.long
def test_a_killed_worker_of_programs_leaves_equal_bytes(
    lives: Lives, calm: Whole, tmp_path: Path
) -> None:
    moments = ["rollout 1 2", "rollout 2 6"]
    end = lives.run(tmp_path, *WORDS, env=WORKER, at=moments, of="workers")
    assert end.code == 0, end.printed
    logs = [log.read_text() for log in tmp_path.rglob("worker-*.log")]
    assert sum(log.count("ended: SIGKILL\n") for log in logs) == len(moments)
    assert_same(tmp_path, calm)


@pytest.mark.long
def test_a_killed_run_of_programs_has_equal_bytes(
    lives: Lives, calm: Whole, tmp_path: Path
) -> None:
    lives.survive(tmp_path, WORDS, ("rollout 1 3", "rollout 2 5", "update 2 1"))
    assert_same(tmp_path, calm)


@pytest.mark.long
def test_a_killed_sampler_repeats_only_its_shard_of_programs(
    lives: Lives, calm: Whole, tmp_path: Path
) -> None:
    """vLLM's rounding depends on its batches, so the bytes of replies are not compared."""
    end = lives.run(tmp_path, *WORDS, env=VLLM, at="rollout 2 5", of="sampler")
    assert end.code == 0, end.printed
    shards = sorted((tmp_path / RUN / "steps").glob(f"*/rollout-*/{EPISODES}"))
    for path in shards:
        played = read_trajectories(path)
        assert [(one.error, len(one.turns)) for one in played] == [(None, 2)] * 4
        spans = [span for one in played for turn in one.turns for span in turn.sampled]
        assert {span.policy_version for span in spans} == {int(path.parts[-3]) - 1}
    assert len(shards) == 4
    assert ledger(tmp_path)["problem"].equals(ledger(calm.folder)["problem"])
