"""The team as a program with an actor for each member:

OPENAI_BASE_URL=... python program.py <<< '{"prompt": "...", "digits": "4731", "first": "north"}'
"""

import asyncio
import json
import os
import sys
from functools import partial

from agentfly_core.recipes.hub.actors import Actor
from agentfly_core.recipes.hub.faults import Faults
from agentfly_core.recipes.hub.team import CHAIR, WITNESSES, conversation, member


async def play(problem: dict[str, str], base_url: str) -> str:
    """The number in the chair's reply."""
    agents = {
        name: Actor(name, partial(member, name, problem["digits"], Faults()), base_url)
        for name in (*WITNESSES, CHAIR)
    }
    return await conversation(agents, problem["prompt"], problem["first"])


if __name__ == "__main__":
    line, url = json.loads(sys.stdin.readline()), os.environ["OPENAI_BASE_URL"]
    print(json.dumps({"answer": asyncio.run(play(line, url))}))
