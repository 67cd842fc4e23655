"""Message hubs with nesting, pipelines, actors in processes, and faults, after AgentScope."""
