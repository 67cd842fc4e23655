"""Artifacts: folders that are published, opened, verified and locked; object storage."""
