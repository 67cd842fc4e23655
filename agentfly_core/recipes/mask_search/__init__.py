"""Mask prediction with a search tool, and questions after it, after MaskSearch (2505.20285)."""
