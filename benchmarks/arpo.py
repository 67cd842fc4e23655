"""Executed tool calls until vaults open: forks by entropy, at random, and none.

    python -m benchmarks.arpo [--seeds 1 2 3] [--steps 30]

All arms play 16 episodes of a problem and start from one warm start by seed. The same command
continues interrupted runs (`runs/arpo-...`). The number of calls is interpolated between the
evaluations on the validation problems around a success of 0.8. Ratios are paired by seed, with a
t-interval of their logarithms.
"""

import math
import subprocess
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean, stdev

from agentfly_core.experiment.run_layout import step_layout
from agentfly_core.records.intervals import student
from agentfly_core.reports.compare.run_steps import run_steps
from benchmarks import harness
from flows.store import store_at

GOAL = 0.8
RANDOM_RATE = 0.2
"""Forks per decision of the arm `entropy` on a development seed."""
ARMS: Mapping[str, Sequence[str]] = {
    "entropy": (),
    "entropy, settings of the paper": (
        "rollout.branching.alpha=0.5",
        "rollout.branching.beta=0.2",
    ),
    "random": ("rollout.branching.mode=random", f"rollout.branching.alpha={RANDOM_RATE}"),
    "never": ("rollout.branching.mode=never",),
}
COLUMNS = ("arm", "calls per step", "calls until 0.8, by seed", "ratio to never", "95 % interval")


def main() -> None:
    """Train the missing runs and print the table."""
    options = harness.parser(__doc__, seeds=[1, 2, 3], steps=30).parse_args()
    until: dict[str, list[float]] = {}
    rows = []
    for arm, settings in ARMS.items():
        runs = [played(arm, settings, seed, options.steps) for seed in options.seeds]
        until[arm] = [calls_until(held_out, calls) for held_out, calls in runs]
        each = fmean(fmean(calls.values()) for _, calls in runs)
        rows.append((arm, f"{each:.0f}", ", ".join(f"{one:.0f}" for one in until[arm])))
    harness.show(COLUMNS, [(*row, *ratio(until[row[0]], until["never"])) for row in rows])
    value, interval = ratio(until["entropy"], until["random"])
    print(f"entropy to random: {value}, {interval}")


def played(
    arm: str, settings: Sequence[str], seed: int, steps: int
) -> tuple[dict[int, float], dict[int, float]]:
    """Validation success and executed calls of a run by step; the run is trained if missing."""
    run = f"arpo-{arm.replace(',', '').replace(' ', '-')}-{seed}"
    changes = [*settings, f"seed={seed}", f"steps={steps}"]
    command = [sys.executable, "-m", "flows", "train", "arpo", *changes, "--run", run]
    subprocess.run(command, check=True, stdout=sys.stderr)
    store = store_at("")
    curve = run_steps(store, run)
    held_out = {
        one.step: one.held_out["validation"].share for one in curve if "validation" in one.held_out
    }
    calls = {}
    for step in range(1, steps + 1):
        content = store.read_json(step_layout(store, run, step).metrics)
        assert content, f"the run {run} lacks step {step}"
        calls[step] = content["metrics"]["branching/executed_calls"]
    return held_out, calls


def calls_until(held_out: Mapping[int, float], calls: Mapping[int, float]) -> float:
    """Executed calls until GOAL, interpolated between evaluations; infinite if never reached."""
    spent = {step: sum(calls[one] for one in range(1, step + 1)) for step in held_out}
    for before, after in pairwise(sorted(held_out)):
        if held_out[before] >= GOAL:
            return spent[before]
        if held_out[after] >= GOAL:
            share = (GOAL - held_out[before]) / (held_out[after] - held_out[before])
            return spent[before] + max(0.0, share) * (spent[after] - spent[before])
    return math.inf


def ratio(some: Sequence[float], others: Sequence[float]) -> tuple[str, str]:
    """The mean ratio, paired by seed, and its t-interval."""
    if math.inf in (*some, *others):
        return "-", "-"
    logs = [math.log(a / b) for a, b in zip(some, others, strict=True)]
    middle = fmean(logs)
    if len(logs) == 1:
        return f"{math.exp(middle):.2f}", "-"
    reach = student(len(logs) - 1) * stdev(logs) / math.sqrt(len(logs))
    low, high = math.exp(middle - reach), math.exp(middle + reach)
    return f"{math.exp(middle):.2f}", f"{low:.2f} to {high:.2f}"


if __name__ == "__main__":
    main()
