"""Agents that plan sub-tasks with tools, and scores of these plans: TPTU (arXiv 2308.03427)."""
