"""Prefect tasks of the stage functions, with retries and the state Reused."""
