"""The stages of training. Each module has the key, body and metrics of one, as plain functions."""
