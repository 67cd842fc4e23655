"""Two cooperating speakers: the planner reads the problem, the executor calls tools."""

from collections.abc import Sequence

from agentfly_core.records.trajectory import Ending, Message, Observation
from agentfly_core.rollout.episode import Episode
from agentfly_core.rollout.speaker import Speaker
from agentfly_core.system.formats.text import without_thoughts

ANSWER = "Answer:"


class PlannerExecutor:
    """The planner replies with a step, such as "Multiply 17 by 5.", until it replies "Answer: 97".

    The executor reads only this step in a fresh context, calls its tools and replies "85", which
    the planner reads. Cut replies do not count as answers. Both are trained. `planner` and
    `executor` are their system messages; `agent.max_turns` holds for each.
    """

    def __init__(self, planner: str = "", executor: str = "") -> None:
        self.planner, self.executor = planner, executor

    async def __call__(self, episode: Episode) -> Ending:
        planner = episode.speaker("planner", system=self.planner)
        executor = episode.speaker("executor", system=self.executor, tools=episode.rules.tools)
        read: Sequence[Message | Observation] = episode.opening[bool(episode.rules.system) :]
        while True:
            reply = await planner.reply(*read)
            text = without_thoughts(reply.content).strip()
            _, marker, answer = text.partition(ANSWER)
            if marker:
                if not reply.cut:
                    planner.answer(answer.strip())
                return Ending.NO_TOOL_CALLS
            read = (Message("user", await self.carried_out(executor, text)),)

    async def carried_out(self, executor: Speaker, step: str) -> str:
        """Have the executor carry out a step with its tools; returns its last reply."""
        context = executor.context()
        reply = await context.reply(Message("user", step))
        while reply.calls:
            reply = await context.reply(*await executor.call(*reply.calls))
        return without_thoughts(reply.content).strip()
