"""Play single episodes and shards of episodes, and manage their environments."""
