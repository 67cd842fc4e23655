"""Vaults with six handles. The model's entropy is high at one turn; ARPO forks episodes there."""
