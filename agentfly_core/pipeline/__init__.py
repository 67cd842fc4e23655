"""What each stage does, between the store and the machinery."""
