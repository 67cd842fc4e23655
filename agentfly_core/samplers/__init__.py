"""Ready-made samplers."""
