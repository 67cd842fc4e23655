"""Plot of a run's success: in training by step, and on held-out problems at evaluations.

agentfly train quickstart evaluate.every=3
python -m benchmarks.learning_curve RUN docs/images/quickstart.png
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from agentfly_core.reports.compare.run_steps import Step, run_steps
from flows.store import store_at


def main() -> None:
    """Write the plot of a run from the store in the working directory."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run")
    parser.add_argument("picture", type=Path)
    options = parser.parse_args()
    steps = run_steps(store_at(""), options.run)
    figure = Figure(figsize=(7, 3), layout="constrained")
    axes = figure.subplots()
    draw(axes, steps)
    figure.savefig(options.picture, dpi=120)


def draw(axes: Axes, steps: Sequence[Step]) -> None:
    """Draw the success in training as a line. Draw each held-out split as points with intervals."""
    trained = [step for step in steps if "success" in step.figures]
    success = [step.figures["success"] for step in trained]
    axes.plot([step.step for step in trained], success, color="C0", alpha=0.5, label="training")
    for color, split in enumerate(dict.fromkeys(name for step in steps for name in step.held_out)):
        rates = [(step.step, step.held_out[split]) for step in steps if split in step.held_out]
        low = [rate.share - rate.interval[0] for _, rate in rates]
        high = [rate.interval[1] - rate.share for _, rate in rates]
        axes.errorbar(
            [step for step, _ in rates],
            [rate.share for _, rate in rates],
            [low, high],
            fmt="o",
            color=f"C{color + 1}",
            label=f"{split}, 95 % interval",
        )
    axes.set(xlabel="step", ylabel="problems solved", ylim=(0, 1))
    axes.legend(loc="lower right")


if __name__ == "__main__":
    main()
