"""The history of an episode: its replies in order, its forks, and the forked episodes."""
