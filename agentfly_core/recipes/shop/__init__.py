"""Training on shopping lists in a shop with six products."""
