"""Add up the pages of ledgers that are longer than the context window."""
