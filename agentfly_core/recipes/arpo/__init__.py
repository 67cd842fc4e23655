"""Vaults to open, for the algorithm ARPO, which forks episodes where the model's entropy rises."""
