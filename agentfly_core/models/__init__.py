"""Models: resolve references to local directories, adapters, saving, and nano models."""
