"""Views of stored episodes, and of their scores by other rewards."""
