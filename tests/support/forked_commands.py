"""A program that runs each `agentfly` command in a fork, which dies at a given moment.

It imports the modules of all commands once, also deepspeed, to save a model, and MLflow's database.
A fork is a real process, and SIGKILL ends it for real. Orders come as lines of JSON on stdin; the
result of each goes to stdout as a line of JSON:

    {"words": ["train"], "folder": "/x", "env": {}, "largest": null, "death": {"at": "update 1 1"}}
    {"code": -9, "moments": [], "opened": 0}

A command with the death `{}` survives; only then do `moments` and `opened` have their final values.
No file may grow beyond `largest` bytes, as on a disk that is full for large files only. Output of
the command goes to the file `output`.
"""

import gc
import json
import os
import resource
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import deepspeed  # noqa: F401
import mlflow.store.tracking.sqlalchemy_store  # noqa: F401
import pandas  # noqa: F401
import prefect.flow_engine  # noqa: F401
import psutil
import sqlalchemy.dialects.sqlite  # noqa: F401
import transformers.models.auto.modeling_auto  # noqa: F401

import agentfly_core.inference.in_process
import agentfly_core.models.pretrained
import agentfly_core.rl.policy_gradient
import agentfly_core.store.object_storage  # noqa: F401
import flows.cli.episodes
import flows.cli.runs
import flows.cli.stages
import flows.cli.training
import flows.orchestration
import flows.train  # noqa: F401
from agentfly_core.pipeline.workers.connection import PROGRAM
from agentfly_core.system.progress import Progress, listening
from agentfly_core.system.supervisor import die_with_parent
from flows.__main__ import main as agentfly
from flows.local.prefect_server import leave, use


class Life:
    """Moments in the life of a command so far, and the moment of its death.

    A moment is a publication (`publish runs/tiny-5f0e2b7c/steps/000001/policy`) or progress
    (`update 1 2`: two optimizer steps of step 1 are done). A death is `{"at": moment}` or
    `{"at": [moment, ...]}`, with `"time": 2` for its second occurrence, or `{"opening": n}` for the
    n-th opened file. It kills the command, or with `"of"` its "learner", its "sampler", its
    "workers" or a process.
    """

    def __init__(self, folder: Path, death: dict[str, Any]) -> None:
        self.folder, self.death = folder, death
        self.moments: list[str] = []
        self.opened = 0

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Take note of an audit event of the interpreter."""
        if event == "open":
            self.opened += 1
            self._die(self.opened == self.death.get("opening"))
        elif event == "os.rename":
            name = os.path.relpath(os.fspath(arguments[1]), self.folder)
            if name.startswith(("runs/", "artifacts/")) and "/.tmp-" not in name:
                self._live(f"publish {name}")

    def __call__(self, progress: Progress) -> None:
        """Take note of progress."""
        self._live(f"{progress.stage} {progress.step} {progress.done}")

    def _live(self, moment: str) -> None:
        self.moments.append(moment)
        times = self.moments.count(moment)
        at = self.death.get("at", [])
        dies = moment == at if isinstance(at, str) else moment in at
        self._die(dies and times == self.death.get("time", 1))

    def _die(self, now: bool) -> None:
        if now:
            of = self.death.get("of", os.getpid())
            for process in [of] if isinstance(of, int) else hearts(of):
                os.kill(process, signal.SIGKILL)


def hearts(service: str) -> list[int]:
    """The processes that do a service's work: the learner's first rank, the engine of the sampler's
    server, the processes that play.
    """
    children = psutil.Process().children(recursive=True)
    if service == "learner":
        return [child.pid for child in children if child.environ().get("RANK") == "0"][:1]
    if service == "workers":
        playing = [child for child in children if plays(child)]
        return [child.pid for child in playing if child.parent() in playing]
    return [child.pid for child in children if child.name().startswith("VLLM::Engine")][:1]


def plays(process: psutil.Process) -> bool:
    """Whether a process is a worker that has not ended."""
    try:
        return PROGRAM in process.cmdline()
    except psutil.ZombieProcess:
        return False


def live(order: dict[str, Any], notes: int) -> int:
    """Run a command as a process of its own would; returns its exit status."""
    os.chdir(order["folder"])
    output = os.open("output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream, target in ((0, os.open(os.devnull, os.O_RDONLY)), (1, output), (2, output)):
        os.dup2(target, stream)
    os.environ.update(order["env"])
    use(os.environ["PREFECT_API_URL"])
    if order["largest"]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (order["largest"], order["largest"]))
    life = Life(Path(order["folder"]), order["death"])
    sys.addaudithook(life.hear)
    with listening(life):
        code = agentfly(order["words"])
    os.write(notes, json.dumps({"moments": life.moments, "opened": life.opened}).encode())
    return code


def fork(order: dict[str, Any]) -> dict[str, Any]:
    """Run a command in a fork until it ends; return its exit code and its notes."""
    assert threading.active_count() == 1, "a fork has but the thread that forked"
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        die_with_parent()
        code = live(order, writing)
        gc.unfreeze()  # prints of libraries would report objects that are never freed
        leave(code)
    os.close(writing)
    with open(reading) as notes:
        noted = json.loads(notes.read() or '{"moments": [], "opened": 0}')
    return {"code": os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), **noted}


if __name__ == "__main__":
    gc.freeze()  # a collection in a fork would write to the pages of imported modules
    for line in sys.stdin:
        print(json.dumps(fork(json.loads(line))), flush=True)
    gc.unfreeze()
