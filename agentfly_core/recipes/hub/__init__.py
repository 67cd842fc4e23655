"""Teams of speakers in nested message hubs, with pipelines and actors, after AgentScope."""
