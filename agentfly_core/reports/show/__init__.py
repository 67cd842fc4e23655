"""Show stored episodes, prepared datasets and settings. Compare stored with new rewards."""
