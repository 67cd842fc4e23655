"""Workers: processes that play the jobs of a session.

The same jobs can be played in this process.
"""
