"""Vaults with one uncertain turn. ARPO forks episodes where the model's entropy is high."""
