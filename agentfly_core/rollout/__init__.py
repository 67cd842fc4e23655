"""Playing episodes: one, a shard of them, and the environments lent to them."""
