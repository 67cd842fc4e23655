"""What an episode has done: replies in time, forks, and their leaves."""
