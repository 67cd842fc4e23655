"""Ready-made algorithms."""
