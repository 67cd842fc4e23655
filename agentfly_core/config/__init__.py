"""Experiment and site files: pydantic models, and reading them."""
