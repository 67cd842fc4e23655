"""What people and later nights learn from runs: the night ledger, promotion, reports."""
