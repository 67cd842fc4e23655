"""Run stage functions as Prefect tasks with retries. If the artifact of a stage was already in the
store, the task ends in the state Reused.
"""
