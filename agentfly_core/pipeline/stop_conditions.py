"""Conditions that stop a run: failed or unscored episodes, diverging updates, and health signs
(limits on metrics).
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from agentfly_core.config.health_signs import SIGNS, Sign, Signs
from agentfly_core.records.speakers import by_episode
from agentfly_core.records.trajectory import Ending, Score, Scored, Trajectory, Unscored
from agentfly_core.system.formats.text import did_you_mean, sentence
from agentfly_core.training.job import SKIPPED_IN_A_ROW


class GateClosed(RuntimeError):
    """Raised to stop a stage, for example after too many failed episodes, or a violated limit of a
    metric. The message contains the cause.
    """


def stop_if_failing(trajectories: Sequence[Trajectory], share: float) -> None:
    """Raise GateClosed if the share of failed episodes is above `share`.

    Failed episodes have the ending FAILED or AGENT_ERROR. A single failed episode is always
    allowed.
    """
    episodes = {t.episode: t for t in trajectories}.values()
    failed = [t for t in episodes if t.ending in (Ending.FAILED, Ending.AGENT_ERROR)]
    # reversed, so that the first problem with each error is kept
    first = {t.error: t.problem.id for t in reversed(failed)}
    errors = [f"{t.error} (first in the problem {first[t.error]!r})" for t in failed]
    what = f"of {len(episodes)} episodes failed"
    # at least 1, because in a small stage a single failure is a large share
    _allow(max(1, share * len(episodes)), errors, what, "gates.failed", share)


def stop_if_unobserved(trajectories: Sequence[Trajectory], share: float) -> None:
    """Raise GateClosed if too many episodes lack a reward that is computed during the episode.

    Such a reward reads an environment, so it cannot be computed later from stored episodes. "Too
    many" means more than two episodes, and more than `share` of all episodes.
    """
    episodes = by_episode(trajectories)
    observed = [[score for t in one for score in t.observed.values()] for one in episodes]
    _allow_unscored(observed, len(episodes), share)


def stop_if_unscored(
    trajectories: Sequence[Trajectory], scores: Sequence[Scored], share: float
) -> None:
    """Raise GateClosed if too many episodes lack a reward.

    "Too many" means more than two episodes, and more than `share` of all episodes. `scores[i]`
    belongs to `trajectories[i]`. Episodes with the ending FAILED do not count as unscored, because
    `stop_if_failing` counts them.
    """
    rewards = {score.trajectory_id: score.reward for score in scores}
    episodes = by_episode(trajectories)
    ended = [[rewards[t.id] for t in one] for one in episodes if one[0].ending is not Ending.FAILED]
    _allow_unscored(ended, len(episodes), share)


def stop_if_diverging(skipped: int, section: str) -> None:
    """Raise GateClosed if the last three optimizer steps were skipped.

    A step is skipped if its gradients are not finite. `skipped` is the number of consecutive
    skipped steps. `section` is the settings section with the learning rate: `update` or
    `warm_start`.
    """
    if skipped >= SKIPPED_IN_A_ROW:
        raise GateClosed(
            f"{skipped} optimizer steps in a row were skipped, because the gradients were not "
            "finite. The newest policy of the run is still usable. Lower "
            f"{section}.learning_rate, and read the episodes with `agentfly show`."
        )


def lasting(
    signs: Signs, metrics: Mapping[str, float], before: Mapping[str, float]
) -> dict[str, float]:
    """Return for how many consecutive steps each health sign (limit on a metric) was violated.

    Example: `{"health/entropy": 2.0}` if the entropy was too low in this step and in the previous
    step. `metrics` are the metrics of this step. `before` are the metrics of the previous step.
    """
    return {
        f"health/{name}": before.get(f"health/{name}", 0.0) + 1.0 if sign.seen(metrics) else 0.0
        for name, sign in signs.items()
        if sign is not None
    }


def unmeasured(signs: Signs, metrics: Mapping[str, float]) -> list[str]:
    """Return a warning for each health sign (limit on a metric) if its metric was not measured.

    The name of such a metric may be mistyped. Metrics of the default health signs cause no warning,
    because some algorithms do not measure them.
    """
    measured = {*metrics, *(sign.metric for sign in SIGNS.values() if sign)}
    missing = {
        name: sign.metric for name, sign in signs.items() if sign and sign.metric not in measured
    }
    return [
        f"health.{name} uses the metric {metric!r}, which was not "
        f"measured.{did_you_mean(metric, sorted(metrics))}"
        for name, metric in missing.items()
    ]


def due(signs: Signs, metrics: Mapping[str, float]) -> dict[str, Sign]:
    """Return the health signs (limits on metrics) that need a warning, by name.

    A sign needs a warning if its limit was violated in at least `sign.steps` consecutive steps.
    `metrics` contains this number of steps for each sign, as computed by `lasting`.
    """
    return {
        name: sign
        for name, sign in signs.items()
        if sign and metrics.get(f"health/{name}", 0.0) >= sign.steps
    }


def reward_fall(metrics: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    """Return the decrease of the mean reward since the previous step.

    Example: after a decrease from 0.64 to 0, the result is `{"rollout/reward_fall": 0.64}`. If the
    absolute value of the previous mean reward was above 1, the decrease is divided by this value.
    In the first step, and after an increase, the result is 0. Without rewards, the result is empty.
    """
    name = "rollout/reward"
    if name not in metrics:
        return {}
    earlier = before.get(name, metrics[name])
    fall = (earlier - metrics[name]) / max(1.0, abs(earlier))
    return {f"{name}_fall": max(0.0, fall)}


def warnings(
    signs: Signs, metrics: Mapping[str, float], advice: Mapping[str, str] = MappingProxyType({})
) -> list[str]:
    """Return a step's warnings about violated health signs (limits on metrics).

    A sign with `steps: 3` causes a warning after 3, 6, 12, 24, ... consecutive steps. `advice` maps
    names of signs to texts that are added to their warnings. Raises GateClosed if a sign with the
    setting `stop` was violated in at least `steps` consecutive steps.
    """
    raised = due(signs, metrics)
    texts = {
        name: "; ".join(
            filter(None, (sign.message(metrics, int(metrics[f"health/{name}"])), advice.get(name)))
        )
        for name, sign in raised.items()
    }
    if fatal := [f"{text} (health.{name})" for name, text in texts.items() if raised[name].stop]:
        raise GateClosed(
            f"The run is stopped: {'; '.join(fatal)}. The newest policy of the run is complete. "
            "Read the episodes with `agentfly show`. To continue the run, change `above` or "
            "`below` in each setting that is listed here, or remove `stop` from the setting. Then "
            "start training again with --run and the run's name."
        )
    lasted = {name: metrics[f"health/{name}"] / sign.steps for name, sign in raised.items()}
    return [texts[name] for name in raised if math.log2(lasted[name]).is_integer()]


def _allow_unscored(
    scores: Sequence[Sequence[float | Score | Unscored]], episodes: int, share: float
) -> None:
    """Raise GateClosed if more than max(2, share * episodes) episodes lack a score (Unscored).

    Each item of `scores` contains the scores of one episode.
    """
    missing = [[score for score in one if isinstance(score, Unscored)] for one in scores]
    reasons = [some[0].reason for some in missing if some]
    what = f"of {episodes} episodes have no reward"
    _allow(max(2, share * episodes), reasons, what, "gates.unscored", share)


def _allow(most: float, causes: Sequence[str], what: str, setting: str, share: float) -> None:
    """Raise GateClosed if there are more than `most` failures.

    `causes` has the cause of each failure. The message names `setting`, the settings key of
    the allowed share of failures (`share`).
    """
    if len(causes) > most:
        frequent = sentence("; ".join(cause for cause, _ in Counter(causes).most_common(3)))
        raise GateClosed(
            f"{len(causes)} {what} ({setting} allows {share:.0%}). Most frequent causes: "
            f"{frequent} Fix these causes, or raise {setting}."
        )
