"""Tools and rewards in processes of their own, with their possible failures."""

import asyncio
import math
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

from agentfly_core.authoring.environment import Environment, ServiceFailure
from agentfly_core.authoring.reward import reward
from agentfly_core.authoring.tool import ToolError, tool
from agentfly_core.records.trajectory import Group, Problem, Score, Team, Trajectory
from agentfly_core.system.supervisor import die_with_parent

client = asyncio.Lock()


@tool(process=True)
def where(what: str, *, problem: Problem) -> dict[str, object]:
    """Return the process id, the arguments and whether this is the main thread."""
    main = threading.current_thread() is threading.main_thread()
    return {"pid": os.getpid(), "what": what, "answer": problem.facts["answer"], "main": main}


@tool(process=True)
def hold(begun: str, fifo: str) -> str:
    """Touch the file `begun`, then read from the fifo."""
    Path(begun).touch()
    return Path(fifo).read_text()


@tool(process=True)
async def again(number: int) -> int:
    """Contend for a lock: it is bound to the event loop on first contention."""
    async with client:
        waiting = asyncio.create_task(client.acquire())
        await asyncio.sleep(0)
    await waiting
    client.release()
    return number + 1


@tool(process=True)
def wrong(how: str) -> str:
    """Go wrong."""
    match how:
        case "told":
            raise ToolError("No such product.")
        case "raises":
            raise KeyError("x")
        case "exits":
            sys.exit(3)
        case "service":
            raise ServiceFailure("the shop is closed")
        case "leaves":
            os._exit(7)
    os.kill(os.getpid(), signal.SIGSEGV)
    return "never"


@tool(process=True, timeout=2.0)
def explode(text: str, pids: str) -> bool:
    """Match in exponential time, in C, with the interpreter's lock held; leave a child process
    running.
    """
    escaped = (
        "import os, signal; os.setsid(); os.fork() and os._exit(0); "
        "print(os.getpid(), flush=True); signal.pause()"
    )
    command = [sys.executable, "-c", escaped]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent)
    assert child.stdout is not None
    Path(pids).write_text(f"{child.stdout.readline().strip()} {os.getpid()}")
    return re.fullmatch("(a+)+b", text) is not None


@reward(process=True)
def length(trajectory: Trajectory, problem: Problem) -> Score:
    if problem.id == "crash":
        os.kill(os.getpid(), signal.SIGKILL)
    if problem.id == "none":
        return None  # type: ignore[return-value]
    assert problem is trajectory.problem
    tokens = tuple(float(len(turn.sampled[0].tokens)) for turn in trajectory.turns)
    return Score(sum(tokens), parts={"pid": float(os.getpid())}, per_turn=tokens)


class Shelf(Environment): ...


@tool(process=True)
def sees(*, shelf: Shelf) -> str:
    return "never"


@tool(process=True, timeout=math.inf)
def endless() -> str:
    return "never"


@reward(process=True)
def rank(group: Group) -> list[int]:
    """The number of shorter answers of the problem."""
    lengths = [len(str(one.answer)) for one in group.trajectories]
    return [sum(other < length for other in lengths) for length in lengths]


@reward(process=True)
def spoke(team: Team) -> int:
    """The number of speakers of the episode with a reply."""
    return sum(bool(one.turns) for one in team.trajectories)
