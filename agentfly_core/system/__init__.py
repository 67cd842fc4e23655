"""Files, processes and text: what knows nothing of agents."""
