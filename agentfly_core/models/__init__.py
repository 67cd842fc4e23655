"""Models: check references, load and save models and adapters, and make tiny (nano) models."""
