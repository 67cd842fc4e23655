"""Three speakers against one and against fewer means, with a simulated model.

    python -m benchmarks.coop_tools [--problems 200] [--seed 1211]

Extraction code runs in the sandbox.
"""

import argparse
import asyncio
from collections.abc import Sequence
from statistics import fmean

from agentfly_core.recipes.coop_tools.agents import CoopTeam, OneAgent
from agentfly_core.recipes.coop_tools.demonstrations import simulated
from agentfly_core.records.trajectory import Problem
from agentfly_core.rewards.exact import exact
from agentfly_core.testing import Simulated, Visible, problems_of, rollout_spec, scores_of_policy
from benchmarks import harness

AGENTS: dict[str, CoopTeam | OneAgent] = {
    "CoopTeam": CoopTeam(),
    "adaptive": CoopTeam("adaptive"),
    "no server_feedback": CoopTeam(server_feedback=False),
    "no code_feedback": CoopTeam(code_feedback=False),
    "no observer": CoopTeam(observer=False),
    "OneAgent": OneAgent(),
}


def main() -> None:
    """Play all agents and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1211)
    options = parser.parse_args()
    made = problems_of(
        "agentfly_core.recipes.coop_tools.dataset:rest_questions",
        seed=options.seed,
        train=options.problems,
        validation=1,
        test=1,
    )
    rows = [
        [name, f"{100 * asyncio.run(success(agent, made['train'])):.1f} %"]
        for name, agent in AGENTS.items()
    ]
    harness.show(("agent", "success"), rows, "mechanism, simulated")


async def success(agent: CoopTeam | OneAgent, problems: Sequence[Problem]) -> float:
    """The share of solved problems."""

    def replies(visible: Visible) -> str:
        return simulated(visible.texts, visible.draw)

    spec = rollout_spec(
        agent=agent, max_turns=20, max_tokens=10_000, max_model_len=200_000, deadline=3600.0
    )
    scores = await scores_of_policy(Simulated([replies]), problems, spec, [exact])
    return fmean(one["exact"] for one in scores.values())


if __name__ == "__main__":
    main()
