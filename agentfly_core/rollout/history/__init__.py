"""The history of an episode.

The history contains the replies in chronological order, and the forks. A forked episode repeats the
replies of its parent up to the fork, and then continues on its own.
"""
