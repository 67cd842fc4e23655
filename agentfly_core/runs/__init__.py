"""Runs: their records, lists of runs, their metrics and episodes, and the versions of datasets."""
