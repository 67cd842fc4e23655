"""Three speakers answer questions about a REST service, after ConAgents (arXiv 2403.03031)."""
