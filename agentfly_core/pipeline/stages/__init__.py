"""The stages of training, as plain functions.

Each module defines the cache key, the work and the metrics of one stage.
"""
