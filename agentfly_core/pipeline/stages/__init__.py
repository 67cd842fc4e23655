"""One module a stage: its key, its body and its metrics, as plain functions."""
