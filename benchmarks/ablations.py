"""Ready-made agents from which something is taken away that they should need: agents.py evaluates
with them what was trained with the whole agent.
"""

from __future__ import annotations

import random

from agentfly_core.agents.folding import Folding
from agentfly_core.agents.planner_executor import PlannerExecutor
from agentfly_core.recipes.folding.dataset import ENTRIES, NUMBERS
from agentfly_core.records.trajectory import Message, Observation
from agentfly_core.rollout.speaker import Context, Speaker


class ForeignSummary(Folding):
    """Continues with a summary of another ledger, `balance 148, next page 52`, which depends on the
    question alone, so that an episode reads the same one whoever plays beside it.
    """

    async def summary(self, context: Context, *read: Message | Observation) -> str:
        """The other ledger's, after this one's was said as in the whole agent."""
        await super().summary(context, *read)
        question, *_ = context.messages[0].content.splitlines()
        draw = random.Random(question)
        return f"balance {sum(draw.choices(ENTRIES, k=3))}, next page {draw.choice(NUMBERS)}"


class BlankSteps(PlannerExecutor):
    """Its executor reads an empty message where the planner names a step."""

    async def carried_out(self, executor: Speaker, step: str) -> str:
        """Whatever the executor says to nothing."""
        return await super().carried_out(executor, "")


class BlankResults(PlannerExecutor):
    """Its planner reads an empty message where the executor says a result."""

    async def carried_out(self, executor: Speaker, step: str) -> str:
        """Nothing, after the step was carried out."""
        await super().carried_out(executor, step)
        return ""
