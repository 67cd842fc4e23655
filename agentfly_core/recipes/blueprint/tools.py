"""Tools of a `Plot`, the environment in which a model constructs a building. The recipe's
agent adds the tool `recall`, which searches the memory (blueprints of buildings that were completed
in earlier steps of the run).
"""

from agentfly_core import tool
from agentfly_core.recipes.blueprint.environment import Plot
from agentfly_core.sandbox import Limits, feedback, run

LIMITS = Limits()


@tool(timeout=60.0)
async def submit_blueprint(blueprint: str, code: bool = False, *, plot: Plot) -> str:
    """Submit a blueprint, which replaces the last one.

    Args:
        blueprint: lines such as: box stone 0 0 0 4 4 0
        code: whether it is Python that prints these lines
    """
    if code:
        blueprint = feedback(await run(blueprint, limits=LIMITS), LIMITS)
    return plot.submit(blueprint)


@tool
async def build(*, plot: Plot) -> str:
    """Clear the plot and build the submitted blueprint."""
    return plot.build()


@tool
async def inspect(*, plot: Plot) -> str:
    """See the plot from four sides, and which parts are complete."""
    return plot.inspect()


@tool
async def materials(*, plot: Plot) -> str:
    """See which blocks there are."""
    return plot.materials()
