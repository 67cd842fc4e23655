"""Playing problems outside of training: who plays, what is stored of it, and what it says."""
