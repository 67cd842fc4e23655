"""Shopping lists in a shop with six products."""
