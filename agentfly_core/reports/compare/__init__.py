"""Comparing runs: differing settings, their effect on success, and its confidence intervals."""
