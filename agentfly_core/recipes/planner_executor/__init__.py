"""Arithmetic in words, by two speakers."""
