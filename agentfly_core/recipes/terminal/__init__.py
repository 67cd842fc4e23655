"""Folders that shell commands change."""
