"""Agents and templates that lack one part, to test whether a policy needs it. agents.py
evaluates with them the policies that were trained with the complete agent.
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
    """A folding agent that replaces each summary by the summary of a wrong ledger.

    Such a summary is `balance 148, next page 52`. It depends only on the question, so it is the
    same in all episodes of a problem.
    """

    async def summary(self, context: Context, *read: Message | Observation) -> str:
        """Sample a summary like the complete agent, but return the summary of the wrong ledger."""
        await super().summary(context, *read)
        question, *_ = context.messages[0].content.splitlines()
        draw = random.Random(question)
        return f"balance {sum(draw.choices(ENTRIES, k=3))}, next page {draw.choice(NUMBERS)}"


class BlankSteps(PlannerExecutor):
    """An agent that lets the executor read an empty message instead of the planner's step."""

    async def carried_out(self, executor: Speaker, step: str) -> str:
        """Return the executor's reply to an empty message."""
        return await super().carried_out(executor, "")


class BlankResults(PlannerExecutor):
    """An agent that lets the planner read an empty message instead of the executor's result."""

    async def carried_out(self, executor: Speaker, step: str) -> str:
        """Carry out the step, and return an empty result."""
        await super().carried_out(executor, step)
        return ""


class OwnThought(ModelTemplate):
    """A template that ends prompts of `last-digit` with the right reasoning, before the answer."""

    def __init__(self, tokenizer: Any, **settings: Any) -> None:
        self._encode = None  # the template is checked without the reasoning
        super().__init__(tokenizer, **settings)
        self._encode = reply_encoder(tokenizer)

    def open(
        self, messages: Sequence[Message | Observation], tools: Sequence[ToolSchema]
    ) -> tuple[int, ...]:
        """Return the tokens of the prompt, followed by the right reasoning about its
        calculation.
        """
        prompt = super().open(messages, tools)
        if self._encode is None:
            return prompt
        calculation = self.calculation(messages[-1].content)
        reasoning = self.markup.marks.joined(thought(calculation, digits(calculation)), "", False)
        return (*prompt, *self._encode(reasoning))

    def calculation(self, question: str) -> str:
        """Return the calculation that the inserted reasoning is about."""
        return calculation_of(question)


class ForeignThought(OwnThought):
    """A template that ends prompts of `last-digit` with reasoning about a wrong calculation.

    The wrong calculation depends only on the question.
    """

    def calculation(self, question: str) -> str:
        """Return a random calculation with the same number of steps as the calculation in
        `question`.
        """
        steps = len(digits(calculation_of(question)))
        return drawn(random.Random(question), steps)
