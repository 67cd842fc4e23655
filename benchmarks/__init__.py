"""Benchmarks: programs, started with `python -m benchmarks.NAME`, that print what they measure."""
