"""Sums by ReAct."""
