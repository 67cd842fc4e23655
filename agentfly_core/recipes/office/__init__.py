"""Questions on the database of an office."""
