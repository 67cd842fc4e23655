"""Success and number of replies of agents, played by a simulated model."""

import random
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import NamedTuple

from agentfly_core.authoring.reward import reward
from agentfly_core.records.trajectory import Problem, Team, Trajectory
from agentfly_core.rewards.exact import exact
from agentfly_core.rollout.episode import RolloutSpec
from agentfly_core.testing import Simulated, Visible, problems_of, scores_of_policy


class Simulation(NamedTuple):
    """The results of a simulation.

    `success` is the share of solved problems. `replies` is the mean, and `most_replies` the largest
    number of replies in an episode.
    """

    success: float
    replies: float
    most_replies: int


@reward
def replies(trajectory: Trajectory, team: Team) -> float:
    """The number of replies of all speakers in an episode."""
    return float(sum(len(one.turns) for one in team.trajectories))


def drawn(dataset: str, size: int, seed: int) -> Sequence[Problem]:
    """Draw problems of a dataset with this seed."""
    return problems_of(dataset, seed=seed, train=size, validation=1, test=1)["train"]


async def simulation(
    spec: RolloutSpec,
    problems: Sequence[Problem],
    model: Callable[[Sequence[str], random.Random], str],
) -> Simulation:
    """Play all problems with a simulated model.

    The function `model` computes a reply from the texts of a conversation and a random generator.
    """

    def reply(visible: Visible) -> str:
        return model(visible.texts, visible.draw)

    scores = await scores_of_policy(Simulated([reply]), problems, spec, [exact, replies])
    solved, counts = ([one[name] for one in scores.values()] for name in ("exact", "replies"))
    return Simulation(fmean(solved), fmean(counts), int(max(counts)))
