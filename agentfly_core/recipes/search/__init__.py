"""Questions on two pages of an encyclopaedia."""
