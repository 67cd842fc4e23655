"""Does the answer name the right one of several options?"""

from __future__ import annotations

import re

from agentfly_core.authoring.reward import reward
from agentfly_core.records.trajectory import Trajectory


@reward
async def choice(trajectory: Trajectory) -> float:
    """1 when the answer names `problem.facts["answer"]` and no other one of
    `problem.facts["options"]`; else, or without one, 0.

    "A horse, of course." names the horse, in whatever case; "horses" and "horseshoe" do not.
    """
    said, facts = trajectory.answer or "", trajectory.problem.facts
    named = [
        option
        for option in map(str, facts["options"])
        if re.search(rf"(?<!\w){re.escape(option)}(?!\w)", said, re.IGNORECASE)
    ]
    return float(named == [str(facts["answer"])])
