"""Run the stages in order (warm start, training, evaluation).

Also provide functions for scripts.
"""
