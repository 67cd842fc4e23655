"""A run with a memory ends with equal bytes wherever it was killed, and with several workers."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from agentfly_core.experiment.memory import memory_folder, memory_of
from agentfly_core.store.store import Store
from tests.support.killed_commands import KILLED, RUN, TRAIN, Lives, digests, survivors
from tests.support.remembering import READER, REMEMBER, notes_in
from tests.support.waiting import until

MEMORY = (f"agent.use={READER}", f"agent.remembers={REMEMBER}", "warm_start=null")
WITHOUT_WEIGHTS = (*TRAIN, *MEMORY, "update=none")


@pytest.fixture(scope="session")
def remembered(lives: Lives, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An undisturbed run of three steps that changes its memory and no weights."""
    return ended(lives, tmp_path_factory.mktemp("remembered"), WITHOUT_WEIGHTS)


def ended(lives: Lives, folder: Path, words: Sequence[str], **environment: str) -> Path:
    end = lives.run(folder, *words, env=environment)
    assert end.code == 0, end.printed
    return folder


def killed(lives: Lives, folder: Path, words: Sequence[str], moments: Sequence[str]) -> None:
    for moment in moments:
        end = lives.run(folder, *words, at=moment)
        assert end.code == KILLED, f"{moment}: {end.printed}"
        until(lambda: not survivors(folder))


@pytest.mark.long
def test_a_run_killed_in_and_after_its_memory_has_equal_bytes(
    tmp_path: Path, lives: Lives, remembered: Path
) -> None:
    steps = f"publish {RUN}/steps"
    moments = [f"{steps}/000001/memory", f"{steps}/000002/memory", f"{steps}/000002/policy"]
    killed(lives, tmp_path, WITHOUT_WEIGHTS, moments)
    assert digests(ended(lives, tmp_path, WITHOUT_WEIGHTS)) == digests(remembered)


@pytest.mark.long
def test_each_step_reads_the_memory_of_the_step_before(remembered: Path) -> None:
    store = Store.at(str(remembered), remembered)
    for step in (1, 2, 3):
        policy = store.artifact(f"{RUN}/steps/00000{step}/policy")
        memory = memory_of(store, policy)
        assert memory and len(notes_in(memory_folder(store, memory))) == step
        rollout = store.artifact(f"{RUN}/steps/00000{step}/rollout-000")
        before = store.get(f"{RUN}/steps/00000{step - 1}/memory")
        assert rollout.manifest["inputs"].get("memory") == (before.digest if before else None)


@pytest.mark.long
def test_two_workers_play_with_the_memory(tmp_path: Path, lives: Lives, remembered: Path) -> None:
    played = ended(lives, tmp_path, WITHOUT_WEIGHTS, AGENTFLY_WORKERS="2")
    assert digests(played) == digests(remembered)


@pytest.mark.long
def test_a_trained_run_killed_at_its_memory_has_equal_bytes(tmp_path: Path, lives: Lives) -> None:
    words = (*TRAIN, *MEMORY, "rollout.max_staleness=1", "update.old_logprobs=sampler")
    whole = ended(lives, tmp_path / "whole", words)
    shutil.copytree(whole / "artifacts", tmp_path / "killed/artifacts")
    killed(lives, tmp_path / "killed", words, [f"publish {RUN}/steps/000002/memory", "update 3 1"])
    assert digests(ended(lives, tmp_path / "killed", words)) == digests(whole)
    store = Store.at(str(whole), whole)
    third = store.artifact(f"{RUN}/steps/000003/rollout-000").manifest["inputs"]
    assert third["memory"] == store.artifact(f"{RUN}/steps/000001/memory").digest
