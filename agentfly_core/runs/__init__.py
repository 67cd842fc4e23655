"""Runs: their record, listing, metrics, episodes and dataset versions."""
