"""TPTU (arXiv 2308.03427): agents that plan sub-tasks, each for one tool, and scores of plans."""
