"""Ready-made datasets, and readers of data files."""
