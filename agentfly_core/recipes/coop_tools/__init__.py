"""Three speakers that use a REST service together, after ConAgents."""
