"""Signs that training goes wrong, looked for in each step's metrics: how long they have lasted, and
when to stop.
"""

from __future__ import annotations

from collections.abc import Mapping

from agentfly_core.config.health_signs import SIGNS, Signs
from agentfly_core.formats.text import did_you_mean
from agentfly_core.pipeline.gates import GateClosed


def lasting(
    signs: Signs, metrics: Mapping[str, float], before: Mapping[str, float]
) -> dict[str, float]:
    """For how many steps in a row each sign has been seen: `{"health/entropy": 2.0}`; `before` are
    the last step's.
    """
    return {
        f"health/{name}": before.get(f"health/{name}", 0.0) + 1.0 if sign.seen(metrics) else 0.0
        for name, sign in signs.items()
        if sign is not None
    }


def unmeasured(signs: Signs, metrics: Mapping[str, float]) -> list[str]:
    """What to tell of signs whose metric is not there, and so will never be seen if it has another
    name.

    The vetted metrics have no other name; not every algorithm has all of them.
    """
    known = {*metrics, *(sign.metric for sign in SIGNS.values() if sign)}
    missing = {
        name: sign.metric for name, sign in signs.items() if sign and sign.metric not in known
    }
    return [
        f"health.{name} looks at {metric!r}, which was not "
        f"measured.{did_you_mean(metric, sorted(metrics))}"
        for name, metric in missing.items()
    ]


def warnings(signs: Signs, metrics: Mapping[str, float]) -> list[str]:
    """What to tell of a step, whose `metrics` say how long each sign has lasted; raises GateClosed
    to stop the run.
    """
    due = {
        name: sign
        for name, sign in signs.items()
        if sign and metrics[f"health/{name}"] >= sign.steps
    }
    told = {name: sign.told(metrics, int(metrics[f"health/{name}"])) for name, sign in due.items()}
    if fatal := [f"{text} (health.{name})" for name, text in told.items() if due[name].stop]:
        raise GateClosed(
            f"The run is stopped: {'; '.join(fatal)}. Its newest policy is whole. Look at what "
            "was played with `agentfly show`; to go on, train it by its name (--run) with another "
            "bound, or without `stop`."
        )
    return list(told.values())
