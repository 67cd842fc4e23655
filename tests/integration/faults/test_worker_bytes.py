"""Shards have the same bytes with one and two workers, and after the death of a session."""

import functools
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from agentfly_core.pipeline.loop.lookahead import side_by_side
from agentfly_core.records.parquet import EPISODES
from agentfly_core.records.trajectory import Ending
from agentfly_core.store.manifest import MANIFEST
from tests.support.killed_commands import KILLED
from tests.support.processes import processes_of
from tests.support.project import ROOT
from tests.support.waiting import until
from tests.support.worker_sessions import AFFECTED, HERE, SHARD, WITH_ENVIRONMENT, session

READING = "agentfly_core.recipes.meco.agents:Reading"
DEEDS = ("first", "second", "third")


def played(folder: Path, deeds: Sequence[str], place: str = "no") -> list[bytes]:
    """The episodes of shards in the store of a session."""
    return [(folder / "runs/unruly" / f"{place}-{deed}" / EPISODES).read_bytes() for deed in deeds]


def with_workers(folder: Path, workers: int, environments: int) -> list[bytes]:
    """The episodes of three shards; `workers` are played at the same time."""
    limits = {**WITH_ENVIRONMENT, "environments": {f"{HERE}:Unruly": environments}}
    with session(folder, workers, **limits) as play:
        side_by_side(workers, functools.partial(play, "no"), DEEDS)
    return played(folder, DEEDS)


def test_one_and_two_workers_with_environments_give_equal_bytes(
    tmp_path: Path,
) -> None:
    one, two = (with_workers(tmp_path / f"{n}", n, environments=2 * SHARD) for n in (1, 2))
    assert one == two
    assert len({*one}) == len(DEEDS)


@pytest.mark.long
def test_one_and_two_workers_read_equal_hidden_states(tmp_path: Path) -> None:
    agent = {"use": READING, "max_turns": 2, "max_tokens": 8, "max_model_len": 512}
    stored = []
    for workers in (1, 2):
        with session(tmp_path / str(workers), workers, agent=agent) as play:
            side_by_side(workers, functools.partial(play, "no"), DEEDS)
            answers = [one.answer or "" for one in play("no", DEEDS[0])]
        assert len({json.loads(answer)["states"] for answer in answers}) == SHARD
        stored.append(played(tmp_path / str(workers), DEEDS))
    assert stored[0] == stored[1]


@pytest.mark.long
def test_two_workers_give_equal_bytes_again_with_few_environments(tmp_path: Path) -> None:
    once, again = (with_workers(tmp_path / n, 2, environments=SHARD) for n in ("once", "again"))
    assert once == again


@pytest.mark.long
def test_a_session_killed_before_a_replay_ends_with_equal_bytes(tmp_path: Path) -> None:
    killed, undisturbed = tmp_path / "killed", tmp_path / "undisturbed"
    command = [sys.executable, "-m", "tests.support.dies_after_blame", str(killed)]
    dead = subprocess.run([*command, "press", "crashes"], cwd=ROOT, check=False)
    assert dead.returncode == KILLED
    assert [*(killed / "artifacts/deaths").iterdir()]
    assert not [*killed.glob(f"runs/unruly/*/{MANIFEST}")]
    until(lambda: not processes_of(str(killed)))

    for folder in (killed, undisturbed):
        with session(folder) as play:
            episodes = play("press", "crashes")
        assert episodes[AFFECTED].ending is Ending.FAILED
        assert "The tool 'press'" in str(episodes[AFFECTED].error)
        log = (folder / "logs/worker-1.log").read_text()
        assert log.count("ended: SIGSEGV") == 1
    assert played(killed, ["crashes"], "press") == played(undisturbed, ["crashes"], "press")
