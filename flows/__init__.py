"""The order of stages."""
