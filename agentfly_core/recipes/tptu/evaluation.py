"""A table of the scores of several policies, one row each."""

from collections.abc import Sequence
from statistics import fmean

from agentfly_core import load_experiment, play


def evaluate_plans(
    experiment: str,
    *overrides: str,
    policies: Sequence[str] = ("oracle",),
    episodes: int = 50,
    store: str = "",
) -> list[dict[str, str | float]]:
    """Play policies on the first test problems; returns the averages of all scores:

        [{"policy": "oracle", "episodes": 50, "planning": 1.0, "planning/format": 1.0, ...}]

    `policies` are as `--policy` of `agentfly play`. Raises ValueError for a missing policy.
    """
    loaded = load_experiment(experiment, *overrides, store=store)
    rows = list[dict[str, str | float]]()
    for policy in policies:
        played = play(loaded, policy, episodes, "test")
        pairs = zip(played.episodes, played.scores, strict=True)
        scored = {one.episode: score.rewards for one, score in pairs}  # equal for all speakers
        names = sorted({name for rewards in scored.values() for name in rewards})
        means = {
            name: fmean(rewards.get(name, 0.0) for rewards in scored.values()) for name in names
        }
        rows.append({"policy": policy, "episodes": len(scored), **means})
    return rows
