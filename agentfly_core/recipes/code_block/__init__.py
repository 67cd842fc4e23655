"""Sums of powers, computed by Python code blocks in replies."""
