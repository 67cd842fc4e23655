"""Sums of ledgers that are longer than the context window."""
