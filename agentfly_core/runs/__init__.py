"""Runs: record, listing, metrics, episodes, dataset versions."""
