"""A sampler that all workers share changes its policy only while no job is played."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agentfly_core.pipeline.workers.job import RolloutJob
from agentfly_core.pipeline.workers.pool import ServedSampler
from agentfly_core.store.artifact import ArtifactKey
from agentfly_core.store.store import Store
from agentfly_core.system.progress import Progress
from tests.support.waiting import until


class Loading:
    """A sampler that records the versions that it loads."""

    def __init__(self) -> None:
        self.versions: list[int] = []

    def load(self, policy: Path, version: int, base: Path | None = None) -> None:
        assert base is None and (policy / "weights").read_text() == str(version)
        self.versions.append(version)


@pytest.fixture
def jobs(tmp_path: Path) -> list[RolloutJob]:
    """Jobs with policies 0 and 1."""
    return [job(Store.at(str(tmp_path), tmp_path), version) for version in (0, 1)]


def job(store: Store, version: int) -> RolloutJob:
    target = ArtifactKey(f"runs/demo/policy-{version}", "update", "9f2c", {})
    with store.publish(target) as folder:
        (folder / "weights").write_text(str(version))
    progress = Progress("rollout", 1, 0, 0)
    return RolloutJob(target, store.artifact(target.uri), version, (), progress)


def test_the_policy_changes_when_the_last_job_has_ended(
    jobs: list[RolloutJob], tmp_path: Path
) -> None:
    sampler = Loading()
    served = ServedSampler(sampler, Store.at(str(tmp_path), tmp_path))  # type: ignore[arg-type]

    def play_the_second() -> None:
        with served.loaded(jobs[1]):
            assert sampler.versions[-1] == 1

    with ThreadPoolExecutor(1) as thread:
        with served.loaded(jobs[0]), served.loaded(jobs[0]) as metrics:
            second = thread.submit(play_the_second)
            until(lambda: served._changed._waiters or second.done())  # type: ignore[attr-defined]
            assert (set(sampler.versions), set(metrics)) == ({0}, {"time/swap"})
        second.result()
