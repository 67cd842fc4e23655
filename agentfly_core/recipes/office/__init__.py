"""Questions about the database of an office."""
