"""Ready-made agents from which something is taken away that they should need: agents.py evaluates
with them what was trained with the whole agent.
"""

from __future__ import annotations

from agentfly_core.agents.folding import ASK, Folding
from agentfly_core.agents.planner_executor import PlannerExecutor
from agentfly_core.records.trajectory import Message, Observation
from agentfly_core.rollout.speaker import Context, Speaker


class ForeignSummary(Folding):
    """Goes on with the summary that an episode of another question said last, and with an empty one
    before there is any.
    """

    def __init__(self, budget: int, ask: str = ASK) -> None:
        super().__init__(budget, ask)
        self._said: dict[str, str] = {}

    async def summary(self, context: Context, *read: Message | Observation) -> str:
        """Another episode's, when this one's was said."""
        own = await super().summary(context, *read)
        question, *_ = context.messages[0].content.splitlines()
        others = [text for asked, text in self._said.items() if asked != question]
        self._said.pop(question, None)  # the last one said is to be the last one here
        self._said[question] = own
        return others[-1] if others else ""


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
