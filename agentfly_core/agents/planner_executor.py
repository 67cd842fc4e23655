"""Two cooperating speakers. The planner reads the problem, and the executor calls tools."""

from collections.abc import Sequence

from agentfly_core.records.trajectory import Ending, Message, Observation
from agentfly_core.rollout.episode import Episode
from agentfly_core.rollout.speaker import Speaker
from agentfly_core.system.formats.text import without_thoughts

ANSWER = "Answer:"


class PlannerExecutor:
    """The planner replies with steps, such as "Multiply 17 by 5.", and finally with "Answer: 97".

    The executor reads each step in a new context, calls its tools and replies, for example "85".
    The planner reads this reply. Replies that were cut at a token limit do not count as answers.
    Both speakers are trained. `planner` and `executor` are the system messages of the speakers.
    `agent.max_turns` limits the turns of each speaker.
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
        """Let the executor perform a step with its tools. Return the executor's last reply."""
        context = executor.context()
        reply = await context.reply(Message("user", step))
        while reply.calls:
            reply = await context.reply(*await executor.call(*reply.calls))
        return without_thoughts(reply.content).strip()
