"""Functions as weights: a model writes its own tools, after AgentOptimizer; see README.md."""

from agentfly_core.recipes.forge.function_sets import functions as functions
