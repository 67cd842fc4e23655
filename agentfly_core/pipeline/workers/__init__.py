"""Workers: child processes that play the jobs of a session. A job contains episodes to play.

A session is a running command. Without workers, the session's process plays the same jobs.
"""
