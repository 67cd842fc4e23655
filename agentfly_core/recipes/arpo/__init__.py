"""A vault with a lamp before an uncertain choice, for forks by entropy (ARPO)."""
