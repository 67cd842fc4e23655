"""Nights: reports, alarms and checks."""
