"""Success and replies of three speakers, of one, and of fewer means, with a simulated model.

    python -m benchmarks.coop_tools [--problems 200] [--seed 1211]

Extraction code runs in the sandbox.
"""

import argparse
import asyncio
from collections.abc import Sequence
from statistics import fmean

from agentfly_core.authoring.reward import reward
from agentfly_core.recipes.coop_tools.agents import CoopTeam, OneAgent
from agentfly_core.recipes.coop_tools.demonstrations import simulated
from agentfly_core.records.trajectory import Problem, Team, Trajectory
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
    "OneAgent, 3 attempts": OneAgent(attempts=3),
}


@reward
def replies(trajectory: Trajectory, team: Team) -> float:
    """The replies of all speakers."""
    return float(sum(len(one.turns) for one in team.trajectories))


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
    rows = [[name, *asyncio.run(measured(one, made["train"]))] for name, one in AGENTS.items()]
    harness.show(("agent", "success", "replies"), rows, "mechanism, simulated")


async def measured(agent: CoopTeam | OneAgent, problems: Sequence[Problem]) -> tuple[str, str]:
    """The share of solved problems, and the mean number of replies."""

    def reply(visible: Visible) -> str:
        return simulated(visible.texts, visible.draw)

    spec = rollout_spec(
        agent=agent, max_turns=20, max_tokens=10_000, max_model_len=200_000, deadline=3600.0
    )
    scores = await scores_of_policy(Simulated([reply]), problems, spec, [exact, replies])
    solved, used = (fmean(one[name] for one in scores.values()) for name in ("exact", "replies"))
    return f"{100 * solved:.1f} %", f"{used:.1f}"


if __name__ == "__main__":
    main()
