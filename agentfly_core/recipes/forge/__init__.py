"""Train functions, not weights: a model writes its own tools (AgentOptimizer, arXiv 2402.11359)."""

from agentfly_core.recipes.forge.function_sets import functions as functions
