"""Masked texts to fill by search, then questions, after MaskSearch (arXiv 2505.20285)."""
