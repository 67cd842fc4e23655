"""Running Python that a model wrote, with nothing of this machine in reach."""
