"""The order of stages: warm start, training, evaluation; functions for scripts."""
