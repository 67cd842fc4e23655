"""Nights (nightly training runs): their ledger, their plan, the promotion of policies, and
reports.
"""
