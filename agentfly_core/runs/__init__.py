"""Runs: their context, record, metrics, listing, and what MLflow and DVC have of them."""
