"""A team of speakers in nested message hubs (groups of speakers), after AgentScope (arXiv
2402.14034). The speakers can form pipelines, or run as actors in separate processes.
"""
