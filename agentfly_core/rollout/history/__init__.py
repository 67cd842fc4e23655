"""The history of an episode.

The history contains the replies in chronological order, and the forks. A fork is a copy of an
episode. The copy repeats the replies up to the fork, and then continues on its own.
"""
