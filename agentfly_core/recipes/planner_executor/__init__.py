"""Sums in words, by two speakers."""
