"""Train a nano model as observer on the exported chats of a team's observer.

    python -m benchmarks.coop_tools_observer [--seeds 1 2 3] [--questions 512] [--data-seed 0]

The simulated model plays the team on training questions. `agentfly export RUN FOLDER --episodes
--speaker observer` writes the observer's chats. A nano model imitates these chats and then reads
answers to other questions; it is right if its value is. In the control, each chat has the reply of
another chat.
"""

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentfly_core.pipeline import inputs
from agentfly_core.runs.summary import Evaluations
from agentfly_core.store.artifact import Pointer
from benchmarks import harness, learning, score_learning
from benchmarks.harness import Evaluated
from flows.experiments import load_experiment

EXPERIMENT, FOLDER = "coop-tools", Path(".agentfly/coop-tools-observer")
MODEL = "agentfly_core.recipes.coop_tools.demonstrations:team"
READS = "agent.reads=1000"
SYLLABLES = "(?:ba|do|ki|lu|me|na|po|ri|su|te)"
SETTINGS = (
    READS,
    "data.use=agentfly_core.recipes.coop_tools.dataset:observations",
    "agent.use=agentfly_core.recipes.coop_tools.agents:ObserverAlone",
    f"nano.atoms=['{SYLLABLES}(?={SYLLABLES}{{0,3}}(?![a-z]))']",
    "evaluate.by=digits",
    "steps=0",
)


def main() -> None:
    """Export the chats, train the missing runs, and print the table."""
    options = harness.parser(__doc__, seeds=[1, 2, 3], questions=512, data_seed=0).parse_args()
    seeds, data = options.seeds, f"data.seed={options.data_seed}"
    chats = exported(options.questions, data)
    arms = {f"seed {seed}": (seed, chats) for seed in seeds}
    arms[f"replies of other chats, seed {seeds[0]}"] = (seeds[0], permuted(chats))
    rows, gains = list[list[str]](), list[float]()
    for name, (seed, file) in arms.items():
        before, after = trained([data, f"seed={seed}", *SETTINGS, imitates(file)], name)
        digits = ", ".join(f"{n}: {rate.share:.3f}" for n, rate in after.by["digits"].items())
        rows.append([*learning.row(name, before.solved, after.solved), digits])
        gains.append(after.success - before.success)
    note = score_learning.by_seed(gains[:-1])  # the last arm is the control
    harness.show((*learning.COLUMNS, "after, by digits"), rows, note=note)


def exported(questions: int, data: str) -> Path:
    """Play training questions, and return the file with the exported chats of the observer."""
    folder = FOLDER / f"{data}-{questions}"
    if not folder.exists():
        # without a warm start, nano's tokenizer is trained on prompts only, which is faster
        played = [data, READS, "warm_start=null", "--policy", MODEL, "--episodes", str(questions)]
        name = json.loads(command("play", EXPERIMENT, *played, "--json"))["play"]
        command("export", f"play:{name}", str(folder), "--episodes", "--speaker", "observer")
    return folder / "chats.jsonl"


def permuted(chats: Path) -> Path:
    """Write a file with wrong replies, for the control. Return its path.

    Each chat gets the replies of the next chat that has the same form.
    """
    kinds = defaultdict[tuple[int, str], list[Any]](list)
    for line in chats.read_text().splitlines():
        chat = json.loads(line)["messages"]
        kinds[len(chat), chat[1]["content"].rpartition("\n")[2]].append(chat)
    lines = list[str]()
    for same in kinds.values():
        for chat, other in zip(same, [*same[1:], same[0]], strict=True):
            pairs = zip(chat, other, strict=True)
            mixed = [theirs if theirs["role"] == "assistant" else own for own, theirs in pairs]
            lines.append(json.dumps({"messages": mixed}) + "\n")
    file = chats.with_name("permuted.jsonl")
    file.write_text("".join(lines))
    return file


def imitates(chats: Path) -> str:
    """Return the override that makes a warm start imitate these chats, with about 400 batches."""
    start = f"demonstrations: 'file:{chats}', rounds: 6, batch: 16, learning_rate: 1.0e-3"
    return f"warm_start={{{start}}}"


def trained(overrides: Sequence[str], name: str) -> Evaluated:
    """Return the evaluations of the untrained model and of the trained model.

    If the run is missing, it is trained.
    """
    run = learning.run_of("coop-tools-observer", name)
    after = harness.trained(EXPERIMENT, overrides, run).after
    loaded = load_experiment(EXPERIMENT, overrides, "local", "")
    base, stored = inputs.base_model(loaded), Evaluations(loaded)
    held_out = Pointer(base.uri, base.digest), "test", loaded.dataset
    if not stored.is_complete(*held_out):
        command("evaluate", EXPERIMENT, *overrides, "--policy", "base")
    return Evaluated(stored.stored(*held_out), after)


def command(*words: str) -> str:
    """Run an `agentfly` command and return its output."""
    done = subprocess.run(
        [sys.executable, "-m", "flows", *words], check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout


if __name__ == "__main__":
    main()
