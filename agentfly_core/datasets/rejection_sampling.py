"""Rejection sampling (RFT, arXiv 2308.01825): select the episodes of a run that become
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
    """Selects up to `best` different episodes of each problem with a reward of at least
    `threshold`.

    Episodes with higher rewards come first; with equal rewards, later steps come first. In a
    selected episode, the trained speakers with such a reward are imitated.
    """

    threshold: float = 1.0
    best: Annotated[int, Field(ge=1)] = 4

    def among(self, played: Iterable[tuple[Trajectory, Scored]], most: int) -> list[Trajectory]:
        """Select at most `most` episodes as demonstrations: first one episode of each problem, then
        a second episode of each, and so on.
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
        episodes.reverse()  # the sort keeps the order of equal ones
        scores = {score.trajectory_id: score for _, score in good}
        episodes.sort(key=lambda episode: episode_reward(episode, scores) or 0.0, reverse=True)
        problems: defaultdict[str, dict[SampledTokens, list[Trajectory]]] = defaultdict(dict)
        for episode in episodes:
            turns = [turn for trajectory in episode for turn in trajectory.turns]
            sampled = tuple(span.tokens for turn in turns for span in turn.sampled)
            # a second episode with equal tokens teaches nothing new; the best and latest copy is
            # kept
            problems[episode[0].problem.id].setdefault(sampled, episode)
        best = [[*different.values()][: self.best] for different in problems.values()]
        ranked = [item for of_problem in best for item in enumerate(of_problem)]
        # one episode of each problem comes before a second one of any, because easy problems have
        # most good episodes ordered by seed: a random but reproducible order of problems
        ranked.sort(key=lambda item: (item[0], item[1][0].seed))
        chosen = [trajectory for _, episode in ranked[:most] for trajectory in episode]
        return [replace(trajectory, role="demonstration") for trajectory in chosen]
