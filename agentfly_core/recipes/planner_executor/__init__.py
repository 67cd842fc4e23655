"""Arithmetic in words, such as "17 times 50, then plus 12", for a planner and an executor."""
