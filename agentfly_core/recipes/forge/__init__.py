"""Functions as learnable weights, after AgentOptimizer: see README.md."""

from agentfly_core.recipes.forge.function_sets import functions as functions
