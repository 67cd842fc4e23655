"""Check model names and paths, load and save models and adapters, and make tiny (nano) models."""
