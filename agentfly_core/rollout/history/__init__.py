"""The history of an episode: its replies in chronological order, its forks, and the episodes that
continue from forks.
"""
