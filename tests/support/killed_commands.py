"""Run `agentfly` commands, kill them, and read their stores."""

import json
import random
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from agentfly_core.store.manifest import MANIFEST
from agentfly_core.store.store import Store
from agentfly_core.system.supervisor import die_with_parent
from tests.support.processes import processes_of
from tests.support.project import ROOT
from tests.support.waiting import LIMIT, until

TINY = str(ROOT / "tests/integration/faults/tiny.yaml")
TRAIN = ("train", TINY, "--run", "demo")
RUN = Path("runs/demo")
KILLED = -9


@dataclass(frozen=True)
class End:
    """The end of a command: exit status, output and, for a command that was not killed, its
    moments.
    """

    code: int
    printed: str
    moments: tuple[str, ...]
    opened: int


@dataclass(frozen=True)
class Whole:
    """An undisturbed run: its folder and its end."""

    folder: Path
    end: End


class Lives:
    """Starts commands: `lives.run(folder, *TRAIN, at="update 1 1")` is killed amid its first
    update.
    """

    def __init__(self, env: Mapping[str, str]) -> None:
        self._program = subprocess.Popen(
            [sys.executable, "-m", "tests.support.forked_commands"],
            cwd=ROOT,
            text=True,
            env=env,
            preexec_fn=die_with_parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def run(
        self,
        folder: Path,
        *words: str,
        env: Mapping[str, str] = {},
        largest: int | None = None,
        **death: Any,
    ) -> End:
        """Run a command in a folder to its end or its death (see forked_commands.py)."""
        folder.mkdir(parents=True, exist_ok=True)
        order = {
            "words": words,
            "folder": str(folder),
            "env": env,
            "largest": largest,
            "death": death,
        }
        assert self._program.stdin and self._program.stdout
        print(json.dumps(order), file=self._program.stdin, flush=True)
        answer = json.loads(self._program.stdout.readline())
        return End(
            answer["code"],
            (folder / "output").read_text(),
            tuple(answer["moments"]),
            answer["opened"],
        )

    def survive(self, folder: Path, words: Sequence[str], moments: Iterable[str]) -> End:
        """Run a command that is killed at each of these moments, and then to its end."""
        for moment in moments:
            end = self.run(folder, *words, at=moment)
            assert end.code == KILLED, f"{moment}: {end.printed}"
            until(lambda: not survivors(folder))
        end = self.run(folder, *words)
        assert end.code == 0, end.printed
        return end

    def close(self) -> None:
        """End the program."""
        assert self._program.stdin
        self._program.stdin.close()
        self._program.wait(LIMIT)


def moments_to_die(moments: tuple[str, ...]) -> list[str]:
    """The first moment of each kind, and four more, in their order.

    Learner states are published while the run continues, at no certain moment: they have a test of
    their own.
    """
    moments = tuple(moment for moment in moments if not re.search(r"/steps/\d+/learner$", moment))
    first: dict[str, str] = {}
    for moment in moments:
        first.setdefault(re.sub(r"[0-9a-f]{16}|\d+", "*", moment), moment)
    chosen = {*first.values(), *random.Random(1).sample(moments, 4)}
    return sorted(chosen, key=moments.index)


def digests(folder: Path) -> dict[str, str]:
    """Digests of the artifacts below a folder: `{"runs/demo/steps/000001/policy": "9f2c...", ...}`.

    Hidden folders are left out: a damaged artifact that was set aside is not published.
    """
    store = Store.at(str(folder), folder)
    published = [path.parent for path in folder.rglob(MANIFEST) if path.parent.name[0] != "."]
    names = [path.relative_to(folder).as_posix() for path in published]
    return {name: store.artifact(name).digest for name in sorted(names)}


def ledger(folder: Path) -> pd.DataFrame:
    """Every problem that the run there consumed."""
    return pd.read_parquet(folder / RUN / "ledger/ledger.parquet")


def summary(folder: Path) -> dict[str, Any]:
    """The summary of the run there, without seconds and without ids of other services."""
    stored: dict[str, Any] = Store.at(str(folder), folder).read_json(f"{RUN}/summary.json")
    return {
        key: value
        for key, value in stored.items()
        if key != "seconds" and not key.endswith(("_id", "_ids"))
    }


def survivors(folder: Path) -> list[str]:
    """The commands of the processes that belong to the run there and still live."""
    record = folder / RUN / "run.json"
    uid = json.loads(record.read_text())["uid"] if record.exists() else "none yet"
    return processes_of(uid)
