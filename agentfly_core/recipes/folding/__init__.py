"""Add up the entries of ledgers that are longer than the context window."""
