"""Test the resource manager with environments that crash, hang or exceed a deadline.

    python -m benchmarks.leases

64 concurrent episodes of 6 turns need 16 environments. Each environment is a process that exchanges
lines of JSON. The episodes are played twice: undisturbed, and with faults. With faults, 20 % of the
processes crash, 10 % of the calls hang past their timeout, and 5 % of the episodes are cancelled at
their deadline. The benchmark exits with an error unless every episode has an ending, exactly the
episodes with faults failed, all other episodes have their undisturbed reward, and no process or
folder is left.
"""

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Literal

import psutil

from agentfly_core.authoring.chat_template import Conversation, ToolSchema
from agentfly_core.authoring.environment import Environment
from agentfly_core.authoring.reward import reward
from agentfly_core.authoring.tool import tool
from agentfly_core.inference.sampler import Request
from agentfly_core.inference.scripted import Scripted
from agentfly_core.records.trajectory import (
    Ending,
    Message,
    Observation,
    Problem,
    Sampled,
    Score,
    ToolCall,
    Trajectory,
)
from agentfly_core.rollout.child_process import Child
from agentfly_core.rollout.frozen import cast
from agentfly_core.rollout.pool import Limit
from agentfly_core.rollout.resources import ResourceManager
from agentfly_core.rollout.rules import EpisodeSpec
from agentfly_core.rollout.shard import play
from agentfly_core.system.formats.hashing import seed
from benchmarks import harness

EPISODES, TURNS, ENVIRONMENTS = 64, 6, 16
CRASHING, HANGING, CANCELLED = 5, 10, 20  # every 5th process, 10th call and 20th episode
ASK_SECONDS, START_SECONDS, DEADLINE = 2.0, 60.0, 8.0
STOP = ord("$")
Fault = Literal["crash", "hang", "cancel"]
SERVICE = """
import json, os, signal, sys
total = 0
for line in sys.stdin:
    match json.loads(line):
        case "crash": os._exit(1)
        case "hang": signal.pause()
        case "reset": total = 0
        case number: total += number
    print(total, flush=True)
"""


@dataclass
class Plan:
    """The plan of faults, and a record of what has happened.

    If `faults` is True, faults are caused. `hit` has the faults so far by problem, such as
    `{"problem-19": "cancel"}`. `folders` has the folders of all started processes. `calls` counts
    the calls.
    """

    faults: bool
    hit: dict[str, Fault] = field(default_factory=dict)
    folders: list[Path] = field(default_factory=list)
    calls: int = 0

    def fault(self, problem: str, turn: int) -> Fault | None:
        """Return the planned fault in a turn of a problem's episode.

        Crashes are not planned here, because they depend on the process.
        """
        if not self.faults:
            return None
        if int(problem.removeprefix("problem-")) % CANCELLED == CANCELLED - 1:
            return "cancel" if turn == TURNS // 2 else None
        return "hang" if seed(4, problem, turn) % HANGING == 0 else None


class Book(Environment):
    """An environment that adds up numbers in its own process."""

    plan: ClassVar[Plan]

    def __init__(self) -> None:
        self.process = Child(sys.executable, "-c", SERVICE)

    async def start(self) -> None:
        await self.process.start()
        self.plan.folders.append(self.process.folder)
        number = len(self.plan.folders)
        self.crash = number % (TURNS // 2) if self.plan.faults and number % CRASHING == 0 else TURNS
        await self.process.ask("reset", START_SECONDS)

    async def reset(self, problem: Problem) -> None:
        self.problem, self.turn = problem.id, 0
        await self.process.ask("reset", ASK_SECONDS)

    async def add(self, number: int) -> int:
        """Add a number and return the new total, or cause the planned fault of this turn."""
        fault = self.plan.fault(self.problem, self.turn)
        if self.crash < TURNS and (fault or self.turn == self.crash):
            fault = "crash"
        self.turn, self.plan.calls = self.turn + 1, self.plan.calls + 1
        if fault:
            self.plan.hit[self.problem] = fault
        total: int = await self.process.ask(fault or number, ASK_SECONDS)
        return total

    async def healthy(self) -> bool:
        return self.process.alive

    async def close(self) -> None:
        await self.process.end()


@tool
async def add(number: int, *, book: Book) -> int:
    """Add a number."""
    return await book.add(number)


@reward
async def total(book: Book) -> float:
    """The total in the environment's process at the end of the episode."""
    total: int = await book.process.ask(0, ASK_SECONDS)
    return float(total)


class Numbers:
    """A chat template in which each letter is a token.

    A reply such as "17" is a call of the tool `add`. An empty reply has no call, and ends the
    episode.
    """

    stop_tokens = (STOP,)

    def open(
        self, messages: Sequence[Message | Observation], tools: Sequence[ToolSchema]
    ) -> tuple[int, ...]:
        return tuple(map(ord, messages[-1].content))

    def extend(
        self,
        reply: Sequence[int],
        read: Sequence[Message | Observation],
        before: Sequence[Message | Observation] = (),
    ) -> tuple[int, ...]:
        return tuple(map(ord, read[-1].content))

    def fit(self, text: str, tokens: int) -> str:
        return text[:tokens]

    def parse(self, reply: Sequence[int], stop: Sequence[str] = ()) -> Message:
        text = "".join(map(chr, reply)).removesuffix("$")
        return (
            Message("assistant", "", (ToolCall("add", {"number": int(text)}),))
            if text
            else Message("assistant", "")
        )


class Stalling(Scripted):
    """A sampler that never replies in turns with the fault "cancel", until the deadline."""

    async def sample(self, request: Request) -> Sampled:
        problem, _, turn = request.conversation.order
        if Book.plan.fault(problem, turn) == "cancel":
            Book.plan.hit[problem] = "cancel"
            await asyncio.Event().wait()
        return await super().sample(request)


@dataclass(frozen=True)
class Played:
    """The results of playing all episodes once.

    `episodes` has the trajectories by problem, `measured` the metrics of the resource manager, and
    `plan` the faults that happened. `descriptors` is the number of open file descriptors
    afterwards.
    """

    episodes: dict[str, Trajectory]
    measured: dict[str, float]
    plan: Plan
    seconds: float
    descriptors: int

    @property
    def earned(self) -> dict[str, float]:
        """The reward of each episode that did not fail, by problem."""
        scores = {name: t.observed.get("total") for name, t in self.episodes.items()}
        return {name: score.value for name, score in scores.items() if isinstance(score, Score)}


async def said(conversation: Conversation) -> str:
    """Reply as the model: with a number in each turn, and at the end with an empty text."""
    problem, _, turn = conversation.order
    return str(seed(1, problem, turn) % 100) if turn < TURNS else ""


async def played(faults: bool) -> Played:
    """Play all episodes at the same time, with or without faults."""
    Book.plan, start = Plan(faults), time.monotonic()
    spec = harness.tool_loop_spec(Numbers(), [add], TURNS + 1, {Book: Limit(ENVIRONMENTS)})
    spec = replace(spec, rewards=(total,), deadline=DEADLINE)
    sampler = Stalling(lambda text: tuple(map(ord, text)), STOP, said)
    problems = [Problem(f"problem-{number}", "Add.") for number in range(EPISODES)]
    async with (
        ResourceManager(spec.limits) as resources,
        cast(sampler, {}, EPISODES) as here,
        asyncio.TaskGroup() as group,
    ):
        await resources.warm(spec.kinds, ENVIRONMENTS, START_SECONDS)
        assigned = [EpisodeSpec(p, 0, 1, "train", 1.0, seed(2, p.id)) for p in problems]
        tasks = [group.create_task(play(a, spec, here, resources)) for a in assigned]
    trajectories = [only for task in tasks for only in task.result().record]
    by_problem = {one.problem.id: one for one in trajectories}
    return Played(
        by_problem,
        resources.metrics(),
        Book.plan,
        time.monotonic() - start,
        psutil.Process().num_fds(),
    )


def mistakes(calm: Played, stormy: Played) -> list[str]:
    """Compare an undisturbed run with a run with faults.

    Return the violated expectations as texts.
    """
    hit = stormy.plan.hit
    failed = {name for name, t in stormy.episodes.items() if t.ending is Ending.FAILED}
    strange = {name: stormy.episodes[name].error for name in failed - set(hit)}
    siblings = {name: value for name, value in calm.earned.items() if name not in hit}
    wrongs = {
        "an episode has no ending": any(len(run.episodes) < EPISODES for run in (calm, stormy)),
        "an undisturbed episode failed": len(calm.earned) < EPISODES,
        f"failed without being hit: {strange}": bool(strange),
        f"hit, but did not fail: {sorted(set(hit) - failed)}": not set(hit) <= failed,
        "a sibling earned something else": siblings != stormy.earned,
        "started and closed differ": any(
            _count(run, "started") != _count(run, "closed") for run in (calm, stormy)
        ),
        "a process is left": bool(psutil.Process().children(recursive=True)),
        "a folder is left": any(
            folder.exists() for run in (calm, stormy) for folder in run.plan.folders
        ),
        "file descriptors are left": stormy.descriptors > calm.descriptors,
    }
    return [what for what, wrong in wrongs.items() if wrong]


def rows(runs: Mapping[str, Played]) -> list[list[str]]:
    """Return the rows of the table. Each row has a column for each run."""
    trajectories = {name: list(run.episodes.values()) for name, run in runs.items()}
    endings = {one.ending.value for played in trajectories.values() for one in played}
    made = []
    for ending in sorted(endings):
        counts = [
            sum(one.ending.value == ending for one in played) for played in trajectories.values()
        ]
        made.append([f"ended {ending}", *map(str, counts)])
    faults: dict[str, Fault] = {
        "processes that crashed": "crash",
        "calls that hung": "hang",
        "cancelled": "cancel",
    }
    for what, fault in faults.items():
        made.append([what, *(_share(run, fault) for run in runs.values())])
    for name in ("started", "closed", "expired", "most_in_use", "most_waiting"):
        made.append([name, *(f"{_count(run, name):g}" for run in runs.values())])
    for name in ("wait_p50", "wait_p95"):
        made.append([f"{name}, s", *(f"{_count(run, name):.2f}" for run in runs.values())])
    return [*made, ["seconds", *(f"{run.seconds:.1f}" for run in runs.values())]]


def _share(run: Played, fault: Fault) -> str:
    hit = Counter(run.plan.hit.values())[fault]
    of = {"crash": len(run.plan.folders), "hang": run.plan.calls, "cancel": EPISODES}[fault]
    return f"{hit} of {of}"


def _count(run: Played, name: str) -> float:
    return run.measured[f"resources/Book/{name}"]


def main() -> None:
    """Play all episodes without and with faults. Print the table and violated expectations."""
    harness.parser(__doc__).parse_args()
    calm, stormy = asyncio.run(played(faults=False)), asyncio.run(played(faults=True))
    title = f"{EPISODES} episodes x {TURNS} turns over {ENVIRONMENTS} environments"
    runs = {"undisturbed": calm, "disturbed": stormy}
    harness.show(["", *runs], rows(runs), title)
    if wrong := mistakes(calm, stormy):
        sys.exit("\n".join(wrong))
    print(
        f"All episodes ended. The {len(stormy.earned)} without faults have the same rewards. "
        "No process or folder is left."
    )


if __name__ == "__main__":
    main()
