"""Ready-made tasks, which can be trained unchanged. Each folder is one task."""
