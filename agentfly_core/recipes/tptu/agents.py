"""TPTU's two agents: one plans all sub-tasks at once, the other plans after each result."""

from collections.abc import Sequence
from typing import Any

from agentfly_core import Ending, Episode, Message, Observation, Speaker, ToolCall, ToolSchema
from agentfly_core.recipes.tptu.plans import SCHEMA, SubTask, filled, parsed

FINISH = "Answer the question with its value alone."
NEXT = "Plan the next sub-task as a list of one, or reply [] if there is none left."
_PLANNING = """Plan how to answer the question with these tools:

{tools}

{notes}Reply with a JSON list of sub-tasks of this schema; {{1}} is the result of sub-task 1:
{schema}"""
_WORKING = (
    "Write the input of a tool for a sub-task, and nothing else. {1} is the result of step 1."
)


class OneStep:
    """The one-step agent of TPTU (TPTU-OA). It plans all sub-tasks, executes them, and answers.

    The planner writes the plan in the episode's main conversation. For each sub-task, the model in
    the role `worker` writes a text. The tool of the sub-task gets this text as its first and only
    argument. If the planner's reply is not a plan, the episode ends. The settings are:

    - `instructions`: whether the planner gets the tools and the schema of a plan. If not, it gets
      only the question.
    - `notes`: a text that describes the data to the planner and to the worker
    - `execute`: whether the sub-tasks are executed. If not, the plan itself is the answer.
    """

    def __init__(self, instructions: bool = True, notes: str = "", execute: bool = True) -> None:
        self.instructions, self.notes, self.execute = instructions, notes, execute

    async def __call__(self, episode: Episode) -> Ending:
        reply = await episode.reply(*self.opening(episode))
        if not self.execute:
            episode.answer(reply.content)
            return Ending.NO_TOOL_CALLS
        try:
            plan = parsed(reply.content)
        except ValueError:
            return Ending.NO_TOOL_CALLS
        worker, results = self.worker(episode), list[str]()
        for step in plan:
            results.append(await carried_out(worker, step, results))
        lines = [f"{number}. {result}" for number, result in enumerate(results, 1)]
        return await finished(episode, "\n".join(["Results:", *lines]))

    def opening(self, episode: Episode) -> Sequence[Message | Observation]:
        """The first messages for the planner."""
        if not self.instructions:
            return episode.opening
        tools = "\n".join(f"- {tool.name}: {summary(tool)}" for tool in episode.rules.schemas)
        system = _PLANNING.format(tools=tools, notes=f"{self.notes}\n\n", schema=SCHEMA)
        return (Message("system", system), *episode.opening[bool(episode.rules.system) :])

    def worker(self, episode: Episode) -> Speaker:
        """Add the speaker (a separate conversation) that writes the inputs of tools."""
        system = f"{_WORKING}\n\n{self.notes}"
        return episode.speaker("worker", system=system, tools=episode.rules.tools)


class Sequential(OneStep):
    """The sequential agent of TPTU (TPTU-SA).

    The agent plans a sub-task, executes it, plans the next sub-task with the result, and so on.
    After an empty plan or `max_steps` sub-tasks, the agent answers.
    """

    def __init__(self, instructions: bool = True, notes: str = "", max_steps: int = 8) -> None:
        super().__init__(instructions, notes)
        self.max_steps = max_steps

    async def __call__(self, episode: Episode) -> Ending:
        read, results = (*self.opening(episode), Message("user", NEXT)), list[str]()
        worker, result = self.worker(episode), "There are no results."
        while len(results) < self.max_steps:
            reply = await episode.reply(*read)
            try:
                plan = parsed(reply.content, len(results))[:1]
            except ValueError:
                return Ending.NO_TOOL_CALLS
            if not plan:
                break
            results.append(await carried_out(worker, plan[0], results))
            result = f"Result {len(results)}: {results[-1]}"
            read = (Message("user", f"{result}\n{NEXT}"),)
        return await finished(episode, result)


async def carried_out(worker: Speaker, step: SubTask, results: Sequence[str]) -> str:
    """Execute a sub-task, and return the last line of the tool's result.

    `results` are the results of the earlier sub-tasks.
    """
    values = dict(enumerate(results, 1))
    tools = {tool.name: tool for tool in worker.rules.schemas}
    described = summary(tools[step.tool]) if step.tool in tools else step.tool
    inputs = "".join(f"\n{{{number}}} = {values[number]}" for number in step.depends_on)
    task = f"Tool: {described}\nSub-task: {step.subtask}{inputs}"
    reply = await worker.context().reply(Message("user", task))
    text, arguments = filled(reply.content.strip(), values), dict[str, str]()
    if step.tool in tools:  # a call of an unknown tool gets an error
        parameters: Any = tools[step.tool].parameters["properties"]
        arguments = dict.fromkeys([*parameters][:1], text)
    # the answers of SQL begin with a line of column names
    (observation,) = await worker.call(ToolCall(step.tool, arguments))
    return (observation.content.splitlines() or [""])[-1]


async def finished(planner: Episode, result: str) -> Ending:
    """Prompt the planner with the text `result`, and set the planner's reply as the answer.

    If a token limit ended the reply, no answer is set. Always returns NO_TOOL_CALLS as the
    episode's ending.
    """
    reply = await planner.reply(Message("user", f"{result}\n{FINISH}"))
    if not reply.cut:
        planner.answer(reply.content.strip())
    return Ending.NO_TOOL_CALLS


def summary(tool: ToolSchema) -> str:
    """The first line of a tool's description."""
    return tool.description.partition("\n")[0]
