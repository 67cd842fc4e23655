"""Ready-made templates."""
