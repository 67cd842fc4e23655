"""Run the stages in order (warm start, training, evaluation).

The module `library` has functions for scripts and notebooks.
"""
