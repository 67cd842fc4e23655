"""A program that runs each of the recipe's five agents in its own process (actor):

OPENAI_BASE_URL=... python program.py <<< '{"prompt": "...", "digits": "4731", "first": "north"}'
"""

import asyncio
import json
import os
import sys
from collections import Counter
from functools import partial

from agentfly_core.recipes.hub.actors import Actor
from agentfly_core.recipes.hub.team import MEMBERS, conversation, member


async def play(problem: dict[str, str], base_url: str) -> None:
    """Let the team (a chair and four members) answer a problem, and print the answer.

    The output is JSON: `{"answer": "3147", "counts": {"hub/retry": 2}}`. `counts` has the number of
    retries and of other remedies for failed model calls and unusable replies. If an error ends the
    conversation, the printed answer is null, and then the error is raised.
    """
    actors = {one: Actor(one, partial(member, one, problem["digits"]), base_url) for one in MEMBERS}
    answer = None
    try:
        answer = await conversation(actors, problem["prompt"], problem["first"])
    finally:
        counts = sum((Counter(one.counts) for one in actors.values()), Counter[str]())
        print(json.dumps({"answer": answer, "counts": counts}))


if __name__ == "__main__":
    asyncio.run(play(json.loads(sys.stdin.readline()), os.environ["OPENAI_BASE_URL"]))
