"""Workers: processes that play the jobs of a session, as this process also can."""
