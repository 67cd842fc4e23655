"""Stages in their order: warm start, training, evaluation; functions for scripts."""
