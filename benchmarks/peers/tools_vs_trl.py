"""Our tool loop and TRL's: seconds per turn with a tool of 0.5 s, for 8 and 32 episodes.

    python -m benchmarks.peers.tools_vs_trl [--episodes 8 32] [--turns 2] [--repeats 3]

Both sides play complete rollouts of the same conversation, from the prompts to the recorded tokens,
with one tokenizer and ChatML. In each turn the model calls an asynchronous tool, which sleeps. Its
last reply has no call. The replies are scripted on both sides, so the loop is timed and not the
model. Ours uses the sampler `scripted`. In TRL's GRPOTrainer the scripted tokens replace
`_generate_single_turn`; the rest is TRL's code, timed around `_generate` in the steps of `train()`.
TRL has its own virtual environment, made on the first call. The table has medians of `--repeats`
rollouts, after one that is not counted. Goal: our turn takes at most 1.3 times as long as one tool.
TRL runs the calls of one message concurrently, but the episodes one after the other. Its
experimental AsyncGRPOTrainer is not compared. This trainer plays episodes concurrently against a
vLLM server that takes weights over NCCL.
"""

import json
import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from agentfly_core.models.pretrained import materialise
from benchmarks import harness
from benchmarks.peers import virtualenvs
from benchmarks.tools import QUESTION, replies, waiting, wall

TRL = "1.16.0"
LATENCIES = (0.0, 0.5)


def theirs(model: Path, latency: float, episodes: int, turns: int, rollouts: int) -> list[float]:
    """Return the seconds of TRL's rollouts."""
    with tempfile.TemporaryDirectory() as scratch:
        settings = {
            "model": str(model),
            "scratch": scratch,
            "question": QUESTION,
            "replies": replies(latency, turns),
            "episodes": episodes,
            "steps": rollouts,
        }
        program = [virtualenvs.trl(TRL), Path(__file__).with_name("tools_trl.py")]
        done = subprocess.run(
            [*program, json.dumps(settings)], check=True, stdout=subprocess.PIPE, text=True
        )
    last = done.stdout.splitlines()[-1]
    return [float(seconds) for seconds in json.loads(last)["seconds"]]


def ours(
    tokenizer: PreTrainedTokenizerBase, latency: float, episodes: int, turns: int, rollouts: int
) -> list[float]:
    """Return the seconds of our rollouts."""
    return [wall(tokenizer, waiting, latency, episodes, turns) for _ in range(rollouts)]


def row(
    latency: float, episodes: int, mine: Sequence[float], its: Sequence[float], turns: int
) -> list[str]:
    """Return a table row: the seconds of a turn, for us (`mine`) and for TRL (`its`).

    They are also shown as multiples of the tool's seconds.
    """
    turn = [statistics.median(taken[1:]) / turns for taken in (mine, its)]
    over = [f"{seconds / latency:.2f}" if latency else "" for seconds in turn]
    cells = [f"{seconds:.3f} s" for seconds in turn]
    return [
        f"{latency} s",
        f"{episodes}",
        cells[0],
        over[0],
        cells[1],
        over[1],
        f"{turn[1] / turn[0]:.1f}",
    ]


def main() -> None:
    """Measure and print medians."""
    options = harness.parser(__doc__, episodes=[8, 32], turns=2, repeats=3).parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        materialise("nano:calculator", Path(folder), "float32")
        tokenizer = harness.tokenizer_of(Path(folder))
        for latency in LATENCIES:
            for episodes in options.episodes:
                size = latency, episodes, options.turns, options.repeats + 1
                mine, its = ours(tokenizer, *size), theirs(Path(folder), *size)
                rows.append(row(latency, episodes, mine, its, options.turns))
    columns = (
        "tool",
        "episodes",
        "ours, a turn",
        "over the tool",
        "TRL, a turn",
        "over the tool",
        "TRL / ours",
    )
    note = f"TRL {TRL}; {options.turns} turns, {options.repeats} rollouts each"
    harness.show(columns, rows, note=note, width=110)


if __name__ == "__main__":
    main()
