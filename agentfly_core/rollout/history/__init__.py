"""The history of an episode.

It contains the replies in chronological order, the forks, and the episodes that continue from
forks.
"""
