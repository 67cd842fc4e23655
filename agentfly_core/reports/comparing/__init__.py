"""Runs beside each other: what they differ in, what that changes, and how sure that is."""
