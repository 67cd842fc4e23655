"""Workers: child processes that play the jobs of a session.

A session is a running command. Without workers, its own process plays the same jobs.
"""
