"""Training on treasure hunts in text adventures."""
