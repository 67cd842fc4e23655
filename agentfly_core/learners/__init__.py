"""Ready-made learners."""
