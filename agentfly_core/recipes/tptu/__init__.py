"""Plans of sub-tasks and tools, with scores of the planning, after TPTU (arXiv 2308.03427)."""
