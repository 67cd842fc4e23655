"""A flow that returns a table of scores, with a row for each policy."""

from collections.abc import Sequence
from statistics import fmean

from agentfly_core import Experiment, Unscored, play


def evaluate_plans(
    experiment: Experiment, policies: Sequence[str] = ("oracle",), episodes: int = 50
) -> list[dict[str, str | float]]:
    """Play policies on the first `episodes` test problems. Return a row for each policy:

        [{"policy": "oracle", "episodes": 50, "unscored": 0, "planning": 1.0, ...}]

    `unscored` is the number of episodes without a score. These episodes are left out of the means.
    An entry such as `planning` is the mean value of the reward with this name. Policies are
    written as for the option `--policy` of `agentfly play`, such as "oracle" or "run:mine@3".
    Raises ValueError for a missing policy.
    """
    rows = list[dict[str, str | float]]()
    for policy in policies:
        played = play(experiment, policy, episodes, "test")
        pairs = zip(played.episodes, played.scores, strict=True)
        by_episode = {one.episode: score for one, score in pairs}  # equal for all speakers
        scored = [s.rewards for s in by_episode.values() if not isinstance(s.reward, Unscored)]
        names = sorted({name for rewards in scored for name in rewards})
        means = {name: fmean(r[name] for r in scored if name in r) for name in names}
        counts = {"episodes": len(by_episode), "unscored": len(by_episode) - len(scored)}
        rows.append({"policy": policy, **counts, **means})
    return rows
