"""A ledger that is longer than the context."""
