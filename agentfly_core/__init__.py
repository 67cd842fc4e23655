"""AgentFly: reinforcement learning of language-model agents, as a pipeline."""
