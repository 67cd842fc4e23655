"""Models: references become local directories; adapters, saving, and the shipped nano models."""
