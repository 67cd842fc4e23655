"""Agents and templates without a part that a policy should need: agents.py evaluates policies
of the whole agent with them.
"""

import random
from collections.abc import Sequence
from typing import Any

from agentfly_core.agents.folding import Folding
from agentfly_core.agents.planner_executor import PlannerExecutor
from agentfly_core.authoring.chat_template import ToolSchema
from agentfly_core.inference.templates.model import ModelTemplate
from agentfly_core.inference.templates.text_encoder import reply_encoder
from agentfly_core.recipes.folding.dataset import ENTRIES, NUMBERS
from agentfly_core.recipes.last_digit.dataset import calculation_of, digits, drawn
from agentfly_core.recipes.last_digit.demonstrations import thought
from agentfly_core.records.trajectory import Message, Observation
from agentfly_core.rollout.speaker import Context, Speaker


class ForeignSummary(Folding):
    """Continues with the summary of another ledger, `balance 148, next page 52`.

    The summary depends on the question alone: parallel episodes do not change it.
    """

    async def summary(self, context: Context, *read: Message | Observation) -> str:
        """Sample the own summary as the whole agent does, and return the other ledger's."""
        await super().summary(context, *read)
        question, *_ = context.messages[0].content.splitlines()
        draw = random.Random(question)
        return f"balance {sum(draw.choices(ENTRIES, k=3))}, next page {draw.choice(NUMBERS)}"


class BlankSteps(PlannerExecutor):
    """Its executor reads an empty message where the planner names a step."""

    async def carried_out(self, executor: Speaker, step: str) -> str:
        """The executor's reply to an empty message."""
        return await super().carried_out(executor, "")


class BlankResults(PlannerExecutor):
    """Its planner reads an empty message in place of each result."""

    async def carried_out(self, executor: Speaker, step: str) -> str:
        """Nothing, after the step was carried out."""
        await super().carried_out(executor, step)
        return ""


class OwnThought(ModelTemplate):
    """Ends the prompts of `last-digit` with the right reasoning; only the answer is sampled."""

    def __init__(self, tokenizer: Any, **settings: Any) -> None:
        self._encode = None  # the template is checked without the reasoning
        super().__init__(tokenizer, **settings)
        self._encode = reply_encoder(tokenizer)

    def open(
        self, messages: Sequence[Message | Observation], tools: Sequence[ToolSchema]
    ) -> tuple[int, ...]:
        """The prompt with the reasoning about its calculation."""
        prompt = super().open(messages, tools)
        if self._encode is None:
            return prompt
        calculation = self.calculation(messages[-1].content)
        reasoning = self.markup.marks.joined(thought(calculation, digits(calculation)), "", False)
        return (*prompt, *self._encode(reasoning))

    def calculation(self, question: str) -> str:
        """The calculation that the reasoning works out."""
        return calculation_of(question)


class ForeignThought(OwnThought):
    """The reasoning is about another calculation, which depends on the question alone."""

    def calculation(self, question: str) -> str:
        """Another calculation of as many steps."""
        steps = len(digits(calculation_of(question)))
        return drawn(random.Random(question), steps)
