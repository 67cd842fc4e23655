"""One module a stage: its key, its body, and what it measures; plain functions."""
