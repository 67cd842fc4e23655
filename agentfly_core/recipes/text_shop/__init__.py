"""Purchases of one product among a thousand."""
