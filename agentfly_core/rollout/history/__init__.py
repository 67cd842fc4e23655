"""The history of an episode: its replies in the order of time, its forks, and the episodes that
start at forks.
"""
