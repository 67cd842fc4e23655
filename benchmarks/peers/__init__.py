"""Comparisons with other projects. Each project has its own virtual environment."""
