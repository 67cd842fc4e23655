"""Sums by an agent in the format of ReAct."""
