"""Nights: their ledger, plan, promotion and report."""
