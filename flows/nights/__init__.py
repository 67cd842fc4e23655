"""Nights: their reports and alarms, and what is checked before one starts."""
