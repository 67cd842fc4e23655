"""A conversation in nested hubs, which deliver each reply of a member to the other members.

Four members have one digit each. They form two pairs, and each pair combines its two digits. Then
the chair combines all digits.
"""

from collections.abc import Mapping
from functools import partial

from agentfly_core.recipes.hub.faults import Faults
from agentfly_core.recipes.hub.hubs import MessageHub
from agentfly_core.recipes.hub.model_agents import AgentModel, ModelAgent
from agentfly_core.recipes.hub.parsers import JsonReply
from agentfly_core.recipes.hub.participants import HubAgent, HubMessage, Participant
from agentfly_core.recipes.hub.pipelines import fan_out, loop, sequential

WITNESSES = ("north", "east", "south", "west")
"""The team members that know one digit each. The first two form a pair, and so do the last two."""
CHAIR = "chair"
MEMBERS = (*WITNESSES, CHAIR)
FORM = JsonReply({"say": str})


def member(name: str, digits: str, faults: Faults, model: AgentModel) -> ModelAgent:
    """Make a member of the team. Each member except the chair knows one of `digits`.

    For example, `member("north", "4731", ...)` knows the first digit, 4.
    """
    own = dict(zip(WITNESSES, digits, strict=True)).get(name)
    task = f"Your digit is {own}. Say all digits of your pair" if own else "Say all digits"
    return ModelAgent(f'You are {name}. {task} as {{"say": "..."}}.', model, FORM, faults)


async def conversation(agents: Mapping[str, HubAgent], prompt: str, first: str) -> str:
    """Run the conversation of a team and return the number in the last reply of its chair.

    Each member except the chair has one digit. These members form two pairs: north and east, south
    and west. At the same time, each pair combines its two digits in its own MessageHub: only the
    pair reads these replies. After that, the second member of each pair reports the digits to the
    whole team. If `first` is "north", east reports before west. Otherwise west reports before east.
    The chair then replies with the number. If this reply does not have four characters, the chair
    is called a second time.
    """
    cast = {name: Participant(name, agent) for name, agent in agents.items()}
    north, east, south, west = (cast[name] for name in WITNESSES)
    async with MessageHub(cast.values(), HubMessage("problem", "problem", prompt)):
        await fan_out([partial(_pair, [north, east]), partial(_pair, [south, west])])
        await sequential([east, west] if first == "north" else [west, east])
        number = await loop(cast[CHAIR], lambda reply: bool(reply and len(reply.content) == 4), 2)
    return number.content


async def _pair(pair: list[Participant], message: HubMessage | None) -> HubMessage:
    async with MessageHub(pair):
        return await sequential(pair, message)
