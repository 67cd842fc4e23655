"""Teams that evolve from one agent, after EvoAgent (arXiv 2406.14228)."""
