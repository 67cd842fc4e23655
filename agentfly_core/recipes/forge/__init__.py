"""A model improves its own tools; its weights stay fixed (AgentOptimizer, arXiv 2402.11359)."""

from agentfly_core.recipes.forge.function_sets import functions as functions
