"""Agents plan sub-tasks, each for one tool. Plans are scored (TPTU, arXiv 2308.03427)."""
