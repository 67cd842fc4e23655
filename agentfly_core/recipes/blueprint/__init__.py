"""Buildings of blocks from blueprints that the model draws, after APT (arXiv 2411.17255)."""
