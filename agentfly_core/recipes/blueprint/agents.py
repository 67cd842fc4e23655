"""The agent Architect. It draws a blueprint for the prompt, builds it and inspects the building."""

from agentfly_core import Ending, Episode, Message, Speaker, ToolCall, require_package, tool
from agentfly_core.agents.tool_loop import last_reply
from agentfly_core.recipes.blueprint.drawing import FORMS, PLOT
from agentfly_core.recipes.blueprint.environment import COMPLETE
from agentfly_core.recipes.blueprint.memory import INTERPRETER, NOTHING, Shelf
from agentfly_core.recipes.blueprint.world import BLOCKS

INTERPRET = """Name the building and its parts, in the order of construction, without numbers.
Reply with JSON alone: {"building": "house", "parts": ["walls", "roof"]}"""
DRAW = f"""You draw blueprints of buildings on a plot of {PLOT[0]} x {PLOT[1]} cells, {PLOT[2]}
high. x is east, y is north and z is up; all begin at 0. Reply with the blueprint alone, of lines:
{FORMS}
Later lines cover earlier ones. Blocks: {", ".join(BLOCKS)}."""
REFLECT = "What is wrong? Correct the blueprint and reply with it alone."


class Architect:
    """An agent that draws a blueprint for an order (the description of a building) and builds it.

    - With `interprets`, the speaker `interpreter` first names the building and its parts.
    - With `recalls`, the agent searches the run's memory for the most similar order. The speaker
      `designer` first reads this order with the stored blueprint. The search needs the package
      bm25s (the extra `search`).
    - The designer may call tools, and then replies with a blueprint. The agent submits the
      blueprint, builds it and inspects the building.
    - If the building is incomplete, the designer reads the report and draws a new blueprint, at
      most `reflections` times.

    With `instructions=False`, the designer gets no system message. Raises ValueError if `recalls`
    is set and bm25s is not installed.
    """

    def __init__(
        self,
        interprets: bool = True,
        recalls: bool = True,
        reflections: int = 3,
        instructions: bool = True,
    ) -> None:
        if recalls:
            require_package("bm25s", "search")
        self.interprets, self.recalls = interprets, recalls
        self.reflections, self.instructions = reflections, instructions

    async def __call__(self, episode: Episode) -> Ending:
        prompt, shelf = episode.problem.prompt, Shelf(episode.memory)
        interpretation = await interpreted(episode) if self.interprets else ""
        designer = episode.speaker(
            "designer",
            system=DRAW if self.instructions else "",
            tools=[*episode.rules.tools, tool(shelf.recall)],
        )
        text = f"{prompt}\n{interpretation}".strip()
        earlier = shelf.recall(interpretation or prompt) if self.recalls else NOTHING
        if earlier != NOTHING:
            text = f"An earlier order and its blueprint:\n{earlier}\n\n{text}"
        for _ in range(self.reflections + 1):
            blueprint = (await last_reply(designer, Message("user", text))).content
            designer.answer(blueprint)
            report = await built(designer, blueprint)
            if COMPLETE in report:
                break
            text = f"{report}\n{REFLECT}"
        return Ending.NO_TOOL_CALLS


async def interpreted(episode: Episode) -> str:
    """Let the speaker `interpreter` read the prompt. Return its reply, which names the
    building and its parts.
    """
    interpreter = episode.speaker(INTERPRETER, system=INTERPRET)
    return (await interpreter.reply(Message("user", episode.problem.prompt))).content


async def built(designer: Speaker, blueprint: str) -> str:
    """Submit a blueprint, build it and inspect the building. Return the tools' answers as one text.

    The tools are `submit_blueprint`, `build` and `inspect`. After an error, the remaining tools are
    not called.
    """
    reports = list[str]()
    submit = ToolCall("submit_blueprint", {"blueprint": blueprint})
    for call in (submit, ToolCall("build", {}), ToolCall("inspect", {})):
        (seen,) = await designer.call(call)
        reports.append(seen.content)
        if seen.error:
            break
    return "\n".join(reports)
