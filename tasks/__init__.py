"""Prefect tasks of the stage functions: their names, their retries, and the state Reused."""
