"""Experiment and site files: their pydantic models, and functions to read them."""
