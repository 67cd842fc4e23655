"""Nights: their work, reports, alarms and checks."""
