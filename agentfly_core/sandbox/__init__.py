"""Running Python that a model wrote, with nothing of this machine in reach."""

KEY = "AGENTFLY_SANDBOX"  # the environment variable that names the one backend to be tried
