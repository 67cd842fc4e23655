"""Cost and benefit of workers: scripted episodes per second, and the time of a small job.

    python -m benchmarks.workers --episodes 2000 --repeats 3

The demonstrations of an experiment are played in this process, by one worker, and by two concurrent
workers with a job each. Workers are already warm. `rest ms` is the median time of a job of 8
episodes. `GiB` is the proportional memory (PSS) of the workers and their supervisors.
"""

import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import psutil

from agentfly_core.experiment.experiment import Experiment
from agentfly_core.pipeline import inputs
from agentfly_core.pipeline.loop.library import load_experiment
from agentfly_core.pipeline.loop.lookahead import side_by_side
from agentfly_core.pipeline.services import rollout_services
from agentfly_core.pipeline.workers.job import DemonstrationJob, JobPlayer
from agentfly_core.store.artifact import ArtifactKey, Pointer
from benchmarks import harness

SMALL = 8
_numbers = count()


@dataclass(frozen=True)
class Players:
    """The players of an experiment. `many` plays many episodes per job, and `few` plays 8.

    `jobs` is the number of concurrent jobs.
    """

    many: JobPlayer
    few: JobPlayer
    data: Pointer
    jobs: int

    def seconds(self, player: JobPlayer) -> float:
        """Let a player do `jobs` concurrent jobs, and return the seconds."""
        begun = time.perf_counter()
        side_by_side(self.jobs, lambda _: player.do(self._job()), range(self.jobs))
        return time.perf_counter() - begun

    def _job(self) -> DemonstrationJob:
        key = f"job-{next(_numbers)}"
        return DemonstrationJob(ArtifactKey(f"artifacts/{key}", "demonstrate", key, {}), self.data)


def main() -> None:
    """Measure, and print a table."""
    options = harness.parser(
        __doc__, experiment="quickstart", episodes=2000, repeats=3
    ).parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for workers in (0, 1, 2):
            with players(options.experiment, options.episodes, workers, Path(folder)) as here:
                here.seconds(here.many), here.seconds(here.few)
                many = [here.seconds(here.many) for _ in range(options.repeats)]
                few = [here.seconds(here.few) for _ in range(10 * options.repeats)]
                rate = here.jobs * options.episodes / statistics.median(many)
                rest = 1000 * statistics.median(few)
                rows.append([str(workers), f"{rate:,.0f}", f"{rest:.0f}", f"{_memory():.2f}"])
    harness.show(["workers", "episodes/s", "rest ms", "GiB"], rows)


@contextmanager
def players(name: str, episodes: int, workers: int, folder: Path) -> Iterator[Players]:
    """Start the players of an experiment during the block, with this number of workers."""
    loaded = load_experiment(name, f"warm_start.episodes={episodes}", store=str(folder))
    site = loaded.site.model_copy(
        update={"workers": workers, "sampler": "transformers", "threads": 1}
    )
    here = replace(loaded, site=site)
    warm_start = here.settings.warm_start
    assert warm_start is not None
    small = warm_start.model_copy(update={"episodes": SMALL})
    fewer = here.on(here.settings.model_copy(update={"warm_start": small}))
    with _player(here, folder) as many, _player(fewer, folder) as few:
        yield Players(many, few, inputs.dataset(here), max(1, workers))


@contextmanager
def _player(experiment: Experiment, folder: Path) -> Iterator[JobPlayer]:
    model = inputs.base_model(experiment)
    with rollout_services(experiment, model, "benchmark", folder / "logs", scripted=True) as here:
        yield here


def _memory() -> float:
    """Return the memory of one player in GiB: half the memory of this process's children.

    Two players are running, and they need equal memory.
    """
    children = psutil.Process().children(recursive=True)
    shares: list[int] = [child.memory_full_info().pss for child in children]
    return sum(shares) / 2 / 2**30


if __name__ == "__main__":
    main()
