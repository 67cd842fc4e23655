"""Run stages in order (warm start, training, evaluation), and provide functions for scripts."""
