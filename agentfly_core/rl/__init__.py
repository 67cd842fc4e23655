"""Advantages, losses, KL, importance sampling, aggregation, GAE, batches."""
