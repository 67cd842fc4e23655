"""Models: turn references into local directories, handle adapters, save models, and provide nano
models.
"""
