"""The flows that Prefect runs, and the commands of `agentfly`."""

import gc

# Episodes create many objects but little garbage, so garbage collections should be rare. With
# Python's default threshold of 700, scripted episodes are slower by a quarter (benchmarks.play: 478
# instead of 654 per second).
gc.set_threshold(20_000)
