"""Artifacts: publish, open, verify and lock folders, also on object storage."""
