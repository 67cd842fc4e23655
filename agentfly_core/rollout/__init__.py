"""Playing episodes: one, a shard of them, and their environments."""
