"""Vaults with one uncertain turn, where episodes fork by entropy (ARPO)."""
