"""Teams that evolve from one agent, after EvoAgent."""
