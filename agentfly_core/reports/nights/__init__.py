"""Nights: ledger, plan, promotion, report."""
