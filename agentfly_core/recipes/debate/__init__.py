"""Debates about sums, with a reward for each debater (arXiv 2305.14325)."""
