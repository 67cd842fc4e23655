"""Evolved teams against self-refinement at equal calls, with a simulated model.

    python -m benchmarks.evolve [--problems 200] [--seed 907]

Each of the drawn problems needs three of twelve skills; the first agent has one.
"""

import argparse
import asyncio
from collections.abc import Sequence
from functools import partial
from statistics import fmean

from agentfly_core.recipes.evolve.agents import Evolve, SelfRefine
from agentfly_core.recipes.evolve.demonstrations import simulated
from agentfly_core.records.trajectory import Problem
from agentfly_core.rewards.exact import exact
from agentfly_core.testing import (
    Simulated,
    Visible,
    problems_of,
    rollout_spec,
    scores_of_policy,
)
from benchmarks import harness

SKILLS = ["reversal"]
SYSTEM = "You are the first agent. Your skills: reversal."
CALLS = {1: 22, 3: 44}
"""Replies of three generations by the number of children; there is one proposal more."""
COLUMNS = ("agent", "replies at most", "success")


def main() -> None:
    """Play all agents and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument("--seed", type=int, default=907)
    options = parser.parse_args()
    made = problems_of(
        "agentfly_core.recipes.evolve.dataset:word_questions",
        seed=options.seed,
        train=options.problems,
        validation=1,
        test=1,
    )
    rows = [
        [name, str(agent.budget), f"{100 * asyncio.run(success(agent, made['train'])):.1f} %"]
        for name, agent in agents().items()
    ]
    harness.show(COLUMNS, rows, "mechanism, simulated")


def agents() -> dict[str, Evolve]:
    """The agents by their names in the table."""
    compared = dict[str, Evolve]()
    for children, calls in CALLS.items():
        name = f"Evolve ({children},3)"
        team = partial(Evolve, SKILLS, children=children, proposals=children + 1, budget=calls)
        compared[name] = team()
        compared[f"{name}, no quality check"] = team(quality_check=False)
        compared[f"{name}, no mutation"] = team(mutation=False)
        compared[f"SelfRefine, {calls} replies"] = SelfRefine(SKILLS, budget=calls)
        compared[f"SelfRefine, inherit, {calls} replies"] = SelfRefine(SKILLS, True, calls)
    return compared


async def success(agent: Evolve, problems: Sequence[Problem]) -> float:
    """The share of solved problems."""

    def replies(visible: Visible) -> str:
        return simulated(visible.texts, visible.draw)

    spec = rollout_spec(agent=agent, system=SYSTEM, max_tokens=10_000, max_model_len=100_000)
    scores = await scores_of_policy(Simulated([replies]), problems, spec, [exact])
    return fmean(one["exact"] for one in scores.values())


if __name__ == "__main__":
    main()
