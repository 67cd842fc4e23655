"""Sums of powers, computed by programs."""
