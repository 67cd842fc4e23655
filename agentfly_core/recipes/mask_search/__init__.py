"""Search tasks: fill masks in texts, then answer questions, after MaskSearch (arXiv 2505.20285)."""
