"""The learner, which trains policies with DeepSpeed: its client, workers, engine and
checkpoints.
"""
