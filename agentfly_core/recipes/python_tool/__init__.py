"""Sums of powers, by programs."""
