"""A vault whose lamp precedes an uncertain choice, for forks by entropy (ARPO)."""
