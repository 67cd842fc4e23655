"""Number of scripted episodes that `agentfly play` plays per second on one core.

    python -m benchmarks.play [--episodes 1000] [--repeats 5] [--core 0]

Each run is a separate process, pinned to one core. It plays the quickstart, whose episodes have two
turns with a tool call each, writes and verifies parquet files, and scores the episodes. The rate is
the number that the command prints, without imports and the dataset.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile

from benchmarks import harness


def rate(experiment: str, episodes: int, store: str) -> float:
    """Run the command `agentfly play` once, and return its number of episodes per second."""
    words = ["play", experiment, "--policy", "oracle", "-n", str(episodes), "--store", store]
    command = [sys.executable, "-m", "flows", *words, "--json"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    figures = json.loads(done.stdout)
    assert figures["episodes"] == figures["endings"]["terminal"] == episodes
    return float(figures["episodes_per_second"])


def main() -> None:
    """Measure the rate several times, and print the median."""
    options = harness.parser(__doc__, episodes=1000, repeats=5, core=0).parse_args()
    os.sched_setaffinity(0, {options.core})  # children inherit it
    with tempfile.TemporaryDirectory(prefix="agentfly-") as store:
        rate("quickstart", options.episodes, store)  # makes the dataset
        taken = [rate("quickstart", options.episodes, store) for _ in range(options.repeats)]
    median, low, high = statistics.median(taken), min(taken), max(taken)
    row = [str(options.episodes), f"{median:.0f}/s", f"{low:.0f} to {high:.0f}/s"]
    title = f"quickstart, policy oracle, core {options.core}, {options.repeats} runs"
    harness.show(("episodes", "median", "lowest to highest"), [row], title)


if __name__ == "__main__":
    main()
