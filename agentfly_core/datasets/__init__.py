"""Ready-made datasets."""
