"""Show stored episodes, prepared datasets and settings. Compare stored rewards with new rewards."""
