"""Play problems outside of training."""
