"""One module per stage. It has the stage's key, body and metrics, as plain functions."""
