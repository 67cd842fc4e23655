"""Benchmarks: programs that print measurements. Start one with `python -m benchmarks.NAME`."""
