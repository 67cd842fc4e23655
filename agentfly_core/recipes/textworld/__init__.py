"""Treasure hunts in text adventures."""
