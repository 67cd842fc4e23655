"""The flows that Prefect runs, and the commands of `agentfly`."""

import gc

# What a flow imports is many objects and hardly any garbage: to look for it among them as often as
# Python does took a fifth of the time of an `agentfly prepare` that finds all made already.
gc.set_threshold(20_000)
