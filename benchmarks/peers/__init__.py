"""Comparisons with other projects, each of which runs in a virtual environment of its own."""
