"""The stages of a run: inputs, playing, scoring, updates, stop conditions and retention."""
