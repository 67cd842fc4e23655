"""Workers: processes that play the jobs of a session, and the same work in this process."""
