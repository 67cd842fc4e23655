"""Compare runs: different settings, and their effect on success with confidence intervals."""
