"""Nights (nightly training runs) in Prefect: their schedules, flows and events."""
