"""The flows that Prefect runs, and the commands of `agentfly`."""

import gc

# An episode leaves many objects and little garbage. Python's default threshold of 700 makes
# scripted episodes slower by a quarter (benchmarks.play: 478 instead of 654 a second).
gc.set_threshold(20_000)
