"""Ready-made chat templates."""
