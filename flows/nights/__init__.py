"""Nights: what is told about them, to whom, and what is looked at before one starts."""
