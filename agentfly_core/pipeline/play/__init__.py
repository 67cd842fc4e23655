"""Playing problems outside of training."""
