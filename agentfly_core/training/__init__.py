"""The DeepSpeed learner: client, workers, engine, checkpoints."""
