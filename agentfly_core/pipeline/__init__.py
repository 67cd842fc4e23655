"""What the stages of a run do: inputs, playing, scoring, updates, stop conditions, retention."""
