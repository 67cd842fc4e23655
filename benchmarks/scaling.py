"""Growth of an update's time and memory with the number of episodes, turns and read tokens.

    python -m benchmarks.scaling [--model nano:calculator] [--repeats 3]

The real DeepSpeed worker trains synthetic episodes with replies of 16 tokens. One of the three
numbers grows at a time; the defaults are 64 episodes, 2 turns and 32 read tokens per turn, with 8
episodes per problem. The table has the median time of the updates after the first, and the worker's
peak memory during these updates. Time must grow at most linearly with the tokens. Memory must not
grow, except that a micro-batch always holds at least one row of tokens.
"""

import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import psutil

from agentfly_core.config.experiment import Update
from agentfly_core.config.site import Site
from agentfly_core.models.pretrained import materialise
from agentfly_core.records.trajectory import Trajectory
from agentfly_core.training.client import DeepSpeedLearner
from agentfly_core.training.job import UpdateJob
from benchmarks import harness

REPLY, GROUP, VOCABULARY = 16, 8, 128


@dataclass(frozen=True)
class Size:
    """The size of an update: `Size(64, 2, 32)`.

    It has the number of episodes, of turns per episode, and of tokens in the prompt of each turn.
    """

    episodes: int = 64
    turns: int = 2
    read: int = 32


SIZES = {
    "episodes": [Size(episodes=n) for n in (8, 32, 128, 512)],
    "turns": [Size(turns=n) for n in (1, 2, 4, 8, 16)],
    "tokens read a turn": [Size(read=n) for n in (16, 64, 256, 512)],
}


def episodes(size: Size, seed: int) -> list[Trajectory]:
    """Make synthetic episodes. The episodes of a problem have the same first prompt."""
    dice = random.Random(seed)
    prompts = [_tokens(dice, size.read) for _ in range(size.episodes // GROUP)]
    return [
        _episode(number, prompts[number // GROUP], dice, size) for number in range(size.episodes)
    ]


def _episode(number: int, prompt: list[int], dice: random.Random, size: Size) -> Trajectory:
    read = [prompt, *(_tokens(dice, size.read) for _ in range(size.turns - 1))]
    turns = [(given, harness.reply(_tokens(dice, REPLY), -4.0)) for given in read]
    return harness.trajectory(number, f"g{number // GROUP}", turns)


def _tokens(dice: random.Random, count: int) -> list[int]:
    return [dice.randrange(VOCABULARY) for _ in range(count)]


def job(folder: Path, policy: Path, number: int, size: Size) -> UpdateJob:
    """Make the job for an update with synthetic episodes. A third of them has the reward 1."""
    stored = harness.stored(folder, episodes(size, number), rewarded_every=3)
    return harness.grpo_update(number, policy, stored, Update())


@contextmanager
def worker(scratch: Path) -> Iterator[tuple[DeepSpeedLearner, psutil.Process]]:
    """Start a learner with one process during the block. Yield the learner and its process."""
    with harness.learner(Site(), scratch) as learner:
        learner.label()
        yield (
            learner,
            max(psutil.Process().children(recursive=True), key=lambda p: p.memory_info().rss),
        )


def peak(process: psutil.Process) -> float:
    """Return the peak resident memory since the last call, in MiB, and reset the peak."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    Path(f"/proc/{process.pid}/clear_refs").write_text("5")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def measured(
    learner: DeepSpeedLearner, process: psutil.Process, jobs: Sequence[UpdateJob]
) -> tuple[float, float]:
    """Do all updates. Return their median seconds and their peak memory in MiB.

    The first update does not count.
    """
    seconds = []
    for number, one in enumerate(jobs):
        if number == 1:
            peak(process)
        started = time.perf_counter()
        learner.update(one)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds[1:]), peak(process)


def grow(
    what: str, sizes: Sequence[Size], measure: Callable[[Size], tuple[float, float]]
) -> Iterator[list[str]]:
    """Measure each size and yield its table row. `what` names the number that grows."""
    for size in sizes:
        seconds, mib = measure(size)
        tokens = size.episodes * size.turns * (size.read + REPLY)
        grown = {"episodes": size.episodes, "turns": size.turns}.get(what, size.read)
        yield [
            f"{grown}",
            f"{tokens}",
            f"{seconds:.2f}",
            f"{1e6 * seconds / tokens:.0f}",
            f"{mib:.0f}",
        ]


def main() -> None:
    """Measure, and print a table for episodes, for turns and for tokens."""
    options = harness.parser(__doc__, model="nano:calculator", repeats=3).parse_args()
    with tempfile.TemporaryDirectory(prefix="agentfly-") as folder:
        scratch, policy, numbers = Path(folder), Path(folder) / "policy", count()
        policy.mkdir()
        materialise(options.model, policy, "float32")
        with worker(scratch) as (learner, process):

            def measure(size: Size) -> tuple[float, float]:
                parts = [Path(tempfile.mkdtemp(dir=scratch)) for _ in range(options.repeats + 1)]
                jobs = [job(part, policy, next(numbers), size) for part in parts]
                return measured(learner, process, jobs)

            for what, sizes in SIZES.items():
                columns = what, "tokens", "update, s", "us a token", "peak, MiB"
                harness.show(columns, grow(what, sizes, measure), f"{options.model}: {what}")


if __name__ == "__main__":
    main()
