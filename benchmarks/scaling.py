"""How an update's time and memory grow: with the number of episodes, of their turns, and with what they read.

    .venv/bin/python benchmarks/scaling.py [--model nano:calculator] [--repeats 3]

Made-up episodes of replies of 16 tokens go through the real DeepSpeed worker. One of the three grows at a time, the
others stay (8 episodes a problem; 64 episodes, 2 turns, 32 tokens read a turn). Medians of the updates after the first;
memory is the worker's peak during them. At most linear: time a token must not grow. Flat: memory must not either, up to
one row of tokens, which is the least that a micro-batch holds.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from agentfly_core.config.experiment import Update
from agentfly_core.config.site import Site
from agentfly_core.models.reference import materialise
from agentfly_core.records.parquet import write_scores, write_trajectories
from agentfly_core.records.trajectory import Ending, Given, Message, Problem, Sampled, Scored, Trajectory, Turn
from agentfly_core.system.service import new_address, supervised
from agentfly_core.training.client import DeepSpeedLearner, launch
from agentfly_core.training.job import UpdateJob

REPLY, GROUP, VOCABULARY = 16, 8, 128


@dataclass(frozen=True)
class Size:
    """So many episodes of so many turns, each of which reads so many tokens: `Size(64, 2, 32)`."""

    episodes: int = 64
    turns: int = 2
    read: int = 32


SIZES = {
    "episodes": [Size(episodes=n) for n in (8, 32, 128, 512)],
    "turns": [Size(turns=n) for n in (1, 2, 4, 8, 16)],
    "tokens read a turn": [Size(read=n) for n in (16, 64, 256, 512)],
}


def episodes(size: Size, seed: int) -> list[Trajectory]:
    """Made-up ones; those of a problem share what they read first."""
    dice = random.Random(seed)
    prompts = [_tokens(dice, size.read) for _ in range(size.episodes // GROUP)]
    return [_episode(number, prompts[number // GROUP], dice, size) for number in range(size.episodes)]


def _episode(number: int, prompt: tuple[int, ...], dice: random.Random, size: Size) -> Trajectory:
    read = [prompt, *(_tokens(dice, size.read) for _ in range(size.turns - 1))]
    turns = tuple(Turn((), Given(given), Message("assistant", ""), (_reply(dice),)) for given in read)
    name, group = f"t{number}", f"g{number // GROUP}"
    return Trajectory(
        id=name,
        episode=name,
        problem=Problem(group, "?"),
        group=group,
        chain=number,
        agent="main",
        role="train",
        turns=turns,
        closing=(),
        ending=Ending.MAX_TURNS,
        error=None,
        observed={},
        seed=number,
    )


def _reply(dice: random.Random) -> Sampled:
    return Sampled(_tokens(dice, REPLY), (-4.0,) * REPLY, 0, "stop")


def _tokens(dice: random.Random, count: int) -> tuple[int, ...]:
    return tuple(dice.randrange(VOCABULARY) for _ in range(count))


def job(folder: Path, policy: Path, number: int, size: Size) -> UpdateJob:
    """An update of these episodes, every third of which is a success; each goes on from the one before."""
    played = episodes(size, number)
    write_trajectories(folder / "t.parquet", played)
    write_scores(folder / "s.parquet", [Scored(t.id, {}, (), float(i % 3 == 0)) for i, t in enumerate(played)])
    return UpdateJob(
        start=f"step/{number}" if number else "fresh:nano",
        end=f"step/{number + 1}",
        policy=str(policy),
        learner="in memory" if number else None,
        rollouts=(str(folder / "t.parquet"),),
        scores=str(folder / "s.parquet"),
        algorithm={"use": "agentfly_core.algorithms.grpo:GRPO"},
        rewards={},
        update=Update().model_dump(mode="json"),
        batch=None,
        temperature=1.0,
        dtype="float32",
        seed=number,
        reference=None,
    )


@contextmanager
def worker(scratch: Path) -> Iterator[tuple[DeepSpeedLearner, psutil.Process]]:
    """A learner of one rank, and its process."""
    address = new_address("learner")
    command, environment = launch(str(address), Site())
    with supervised("learner", command, environment, address, scratch / "learner.log", "benchmark") as service:
        learner = DeepSpeedLearner(service)
        learner.label()
        yield learner, max(psutil.Process().children(recursive=True), key=lambda p: p.memory_info().rss)


def peak(process: psutil.Process) -> float:
    """The MiB that were resident at most since the last call."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    Path(f"/proc/{process.pid}/clear_refs").write_text("5")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def measured(learner: DeepSpeedLearner, process: psutil.Process, jobs: Sequence[UpdateJob]) -> tuple[float, float]:
    """The median seconds of the updates after the first, and their peak memory in MiB."""
    seconds = []
    for number, one in enumerate(jobs):
        if number == 1:
            peak(process)
        started = time.perf_counter()
        learner.update(one)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds[1:]), peak(process)


def main() -> None:
    """Measure and print one table for each of the three."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="nano:calculator")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="agentfly-") as folder:
        scratch, policy, count = Path(folder), Path(folder) / "policy", 0
        policy.mkdir()
        materialise(options.model, policy, "float32")
        with worker(scratch) as (learner, process):
            for what, sizes in SIZES.items():
                table = Table(what, "tokens", "update, s", "us a token", "peak, MiB", title=f"{options.model}: {what}")
                for size in sizes:
                    parts = [Path(tempfile.mkdtemp(dir=scratch)) for _ in range(options.repeats + 1)]
                    jobs = [job(part, policy, count + i, size) for i, part in enumerate(parts)]
                    count += len(jobs)
                    seconds, mib = measured(learner, process, jobs)
                    tokens = size.episodes * size.turns * (size.read + REPLY)
                    grown = {"episodes": size.episodes, "turns": size.turns}.get(what, size.read)
                    shown = f"{tokens}", f"{seconds:.2f}", f"{1e6 * seconds / tokens:.0f}", f"{mib:.0f}"
                    table.add_row(str(grown), *shown)
                Console().print(table)


if __name__ == "__main__":
    main()
