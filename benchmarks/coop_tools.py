"""Success and number of replies with three speakers, one speaker, and agents that lack a part.

A simulated model plays them.

    python -m benchmarks.coop_tools [--problems 200] [--seed 1211]

Extraction code runs in the sandbox.
"""

import asyncio

from agentfly_core.recipes.coop_tools.agents import CoopTeam, OneAgent
from agentfly_core.recipes.coop_tools.demonstrations import simulated
from agentfly_core.testing import rollout_spec
from benchmarks import harness
from benchmarks.simulated import drawn, simulation

DATASET = "agentfly_core.recipes.coop_tools.dataset:rest_questions"
AGENTS: dict[str, CoopTeam | OneAgent] = {
    "CoopTeam": CoopTeam(),
    "adaptive": CoopTeam("adaptive"),
    "no server_feedback": CoopTeam(server_feedback=False),
    "no code_feedback": CoopTeam(code_feedback=False),
    "no observer": CoopTeam(observer=False),
    "OneAgent": OneAgent(),
    "OneAgent, 3 attempts": OneAgent(attempts=3),
}


def main() -> None:
    """Play all agents and print the table."""
    options = harness.parser(__doc__, problems=200, seed=1211).parse_args()
    problems, rows = drawn(DATASET, options.problems, options.seed), list[list[str]]()
    for name, agent in AGENTS.items():
        spec = rollout_spec(
            agent=agent, max_turns=20, max_tokens=10_000, max_model_len=200_000, deadline=3600.0
        )
        played = asyncio.run(simulation(spec, problems, simulated))
        rows.append([name, f"{100 * played.success:.1f} %", f"{played.replies:.1f}"])
    harness.show(("agent", "success", "replies"), rows, "mechanism, simulated")


if __name__ == "__main__":
    main()
