"""Questions that need two pages of an encyclopaedia."""
