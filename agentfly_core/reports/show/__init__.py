"""Show stored episodes, and their scores by other rewards."""
