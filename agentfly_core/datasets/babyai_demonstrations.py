"""A policy that carries out missions in one room: what it does follows from what it reads."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.datasets.babyai_player import Goal, Pose, Room, fits
from agentfly_core.datasets.demonstrations import Demonstrator
from agentfly_core.datasets.mistakes import called, mistake, observed
from agentfly_core.environments.babyai import ACTIONS
from agentfly_core.records.messages import call_text
from agentfly_core.records.trajectory import Problem
from agentfly_core.tools.babyai import DONE, OVER

MISTAKES = ("other thing", "wander")


def babyai(problems: Sequence[Problem], seed: int, spoilt: float = 0.3) -> Demonstrator:
    """Turn until the thing is seen, go there, and do with it what the mission says; it understands
    missions to go to a thing, to pick one up, and to put one next to another, in one room.

    A share `spoilt` of the episodes takes another thing, or wanders about.
    """

    async def policy(conversation: Conversation) -> str:
        mission, first = conversation.problem.prompt.splitlines()
        views = [first, *observed(conversation)]
        if views[-1] in (DONE, OVER):
            return views[-1]
        goal = Goal.of(mission)
        wrong = mistake(conversation, seed, spoilt, MISTAKES)
        if wrong == "wander":
            draw = random.Random(conversation.seed)
            return call_text("act", action=draw.choice(ACTIONS[:3]), times=draw.randint(1, 3))
        room, pose = Room(), Pose((0, 0), (1, 0))
        room.see(first, pose)
        if wrong == "other thing":
            others = [thing for thing in room.things.values() if not fits(thing, goal.thing)]
            unseen = "grey box" if fits("red key", goal.thing) else "red key"
            goal = replace(goal, thing=others[0] if others else unseen)
        for call, view in zip(called(conversation), views[1:], strict=True):
            pose = pose.after(str(call.arguments["action"]), int(str(call.arguments["times"])))
            room.see(view, pose)
        action, times = goal.next_call(room, pose)
        return call_text("act", action=action, times=times)

    return policy
