"""Show stored episodes, prepared datasets and settings, and compare scores by other rewards."""
