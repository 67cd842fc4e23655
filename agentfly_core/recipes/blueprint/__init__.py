"""Buildings from blueprints in a world of blocks, after APT."""
