"""The agent that replaces a long context by a summary from the model (as in SUPO, arXiv
2510.06727).
"""

from collections.abc import Sequence

from agentfly_core.records.trajectory import Ending, Message, Observation
from agentfly_core.rollout.episode import Episode
from agentfly_core.rollout.speaker import Context
from agentfly_core.system.formats.text import without_thoughts

ASK = (
    "Sum up what you have found out and what is left to do. All above will be forgotten; you go on "
    "with the question and your summary alone."
)


class Folding:
    """A tool loop that summarizes its context when the context becomes long.

    All contexts of an episode together can have more tokens than `agent.max_model_len`. In this
    example, the second context begins in the third line:

        What do pages 1 to 6 add up to?   -> read_page(1), ..., read_page(3)
        Sum up what you have found out.   -> Pages 1 to 3 add up to 64.
        What do pages 1 to 6 add up to?
        Pages 1 to 3 add up to 64.        -> read_page(4), ...

    A context with more than `budget` tokens after a tool call is summarized. For this, the model
    reads the message `ask` (the second line of the example) and replies with a summary. The next
    context begins with the problem and the summary. The model is trained on the summary, too.
    `agent.max_model_len` must have room for `budget` tokens, a tool's answer and a reply.
    """

    def __init__(self, budget: int, ask: str = ASK) -> None:
        if budget < 1:
            raise ValueError(f"Folding(budget={budget}): the budget must be at least 1 token.")
        self.budget, self.ask = budget, ask

    async def __call__(self, episode: Episode) -> Ending:
        *before, question = episode.rules.opening(episode.problem)
        context = episode.context()
        read: Sequence[Message | Observation] = episode.opening
        while True:
            reply = await context.reply(*read)
            if not reply.calls:
                return Ending.NO_TOOL_CALLS
            read = await episode.call(*reply.calls)
            if context.tokens > self.budget:
                summary = await self.summary(context, *read)
                context = episode.context()
                read = (*before, Message("user", f"{question.content}\n{summary}"))

    async def summary(self, context: Context, *read: Message | Observation) -> str:
        """Ask the model for a summary of `context`, and return the summary without reasoning.

        `read` has the messages that the model has not read yet, such as tool answers.
        """
        summed_up = await context.reply(*read, Message("user", self.ask))
        return without_thoughts(summed_up.content).strip()
