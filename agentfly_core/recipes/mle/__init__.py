"""A gym for machine-learning engineering, modelled on MLE-Dojo (arXiv 2505.07782)."""
