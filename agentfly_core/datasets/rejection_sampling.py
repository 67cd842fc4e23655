"""Rejection sampling (RFT, arXiv 2308.01825): select successful episodes of a run as
demonstrations.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field

from agentfly_core.records.speakers import by_episode, episode_reward, reaches
from agentfly_core.records.trajectory import Scored, Trajectory, Unscored

SampledTokens = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class RejectionSampling:
    """Selects at most `best` different episodes of each problem as demonstrations.

    In a selected episode, at least one trained speaker has a reward of at least `threshold`. Only
    the speakers with such a reward are imitated. Episodes with higher rewards are preferred. If
    rewards are equal, episodes of later steps are preferred.
    """

    threshold: float = 1.0
    best: Annotated[int, Field(ge=1)] = 4

    def among(self, played: Iterable[tuple[Trajectory, Scored]], most: int) -> list[Trajectory]:
        """Select at most `most` episodes as demonstrations.

        First, one episode of each problem is selected, then a second episode of each problem, and
        so on. `played` has the trajectories of a run with their scores.
        """
        good = [
            (trajectory, score)
            for trajectory, score in played
            if trajectory.role == "train"
            and not trajectory.policy
            and not isinstance(score.reward, Unscored)
            and reaches(score.reward, self.threshold)
        ]
        episodes = by_episode([trajectory for trajectory, _ in good])
        episodes.reverse()  # later steps first; the sort keeps the order of equal rewards
        scores = {score.trajectory_id: score for _, score in good}
        episodes.sort(key=lambda episode: episode_reward(episode, scores) or 0.0, reverse=True)
        problems: defaultdict[str, dict[SampledTokens, list[Trajectory]]] = defaultdict(dict)
        for episode in episodes:
            turns = [turn for trajectory in episode for turn in trajectory.turns]
            sampled = tuple(span.tokens for turn in turns for span in turn.sampled)
            # of several episodes with equal tokens, only the best and latest episode is kept
            problems[episode[0].problem.id].setdefault(sampled, episode)
        best = [[*different.values()][: self.best] for different in problems.values()]
        ranked = [item for of_problem in best for item in enumerate(of_problem)]
        # One episode of each problem comes before a second episode of any problem, because easy
        # problems have the most good episodes. The problems are ordered by the seeds of their
        # episodes, which is a random but reproducible order.
        ranked.sort(key=lambda item: (item[0], item[1][0].seed))
        chosen = [trajectory for _, episode in ranked[:most] for trajectory in episode]
        return [replace(trajectory, role="demonstration") for trajectory in chosen]
