"""Evolved teams against self-refinement at equal calls, with a simulated model.

    python -m benchmarks.evolve [--problems 200] [--seed 907]

Each of the drawn problems needs three of twelve skills; the first agent has one.
"""

import asyncio
from functools import partial

from agentfly_core.recipes.evolve.agents import Evolve, SelfRefine
from agentfly_core.recipes.evolve.demonstrations import simulated
from agentfly_core.testing import rollout_spec
from benchmarks import harness
from benchmarks.simulated import drawn, simulation

DATASET = "agentfly_core.recipes.evolve.dataset:word_questions"
SKILLS = ["reversal"]
SYSTEM = "You are the first agent. Your skills: reversal."
CALLS = {1: 22, 3: 44}
"""The number of replies in three generations, by the number of children in a generation.

The number of proposals is one more than the number of children.
"""
COLUMNS = ("agent", "replies at most", "success")


def main() -> None:
    """Play all agents and print the table."""
    options = harness.parser(__doc__, problems=200, seed=907).parse_args()
    problems, rows = drawn(DATASET, options.problems, options.seed), list[list[str]]()
    for name, agent in agents().items():
        spec = rollout_spec(agent=agent, system=SYSTEM, max_tokens=10_000, max_model_len=100_000)
        played = asyncio.run(simulation(spec, problems, simulated))
        rows.append([name, str(played.most_replies), f"{100 * played.success:.1f} %"])
    harness.show(COLUMNS, rows, "mechanism, simulated")


def agents() -> dict[str, Evolve]:
    """Return the agents by their names in the table."""
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


if __name__ == "__main__":
    main()
