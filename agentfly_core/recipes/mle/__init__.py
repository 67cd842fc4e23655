"""A gym for machine-learning engineering, after MLE-Dojo."""
