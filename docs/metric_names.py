"""The names of all metrics of a step, from the code that computes them."""

import re
from collections.abc import Iterator
from pathlib import Path

import agentfly_core
from agentfly_core.authoring.environment import Environment
from agentfly_core.records.timing import Span, Timing
from agentfly_core.records.trajectory import Ending, Scored
from agentfly_core.rollout.pool import Limit
from agentfly_core.rollout.resources import ResourceManager
from agentfly_core.runs.metrics import rollout_metrics
from agentfly_core.testing import trajectory, turn

CORE = Path(agentfly_core.__file__).parent
WRITERS = ("training", "rl", "algorithms", "pipeline/stages")
_LITERAL = re.compile(r"\"((?:train|mismatch|time)/\w+)\"")


def literals() -> Iterator[str]:
    """The names that the learner, the algorithms and the pipeline write as texts."""
    for place in WRITERS:
        for file in (CORE / place).rglob("*.py"):
            yield from _LITERAL.findall(file.read_text())


def of_episodes() -> Iterator[str]:
    """The names of an episode's metrics, with two speakers and one tool."""
    spoken = [
        trajectory(turn([1], {2: -0.5}), name=name, agent=name, episode="e")
        for name in ("planner", "executor")
    ]
    scores = [Scored(one.id, {"REWARD": 1.0}, (), 1.0) for one in spoken]
    timings = [Timing("planner", (Span("generating", 0.0, 1.0),))]
    yield from rollout_metrics(spoken, scores, timings, "REWARD", ["TOOL"])
    yield from ("rollout/reward_fall", "gateway/overruled/FIELD")
    yield from (f"branching/{one}" for one in ("decisions", "forks", "executed_calls"))


class ENVIRONMENT(Environment):
    """Stands for any environment."""


def names() -> set[str]:
    """All names, with TOOL, SPEAKER, ENDING, REWARD and ENVIRONMENT in place of real ones."""
    general = {
        "rollout/speaker/(planner|executor)/": "rollout/speaker/SPEAKER/",
        f"rollout/ending/({'|'.join(Ending)})$": "rollout/ending/ENDING",
    }
    measured = {*literals(), *of_episodes(), *ResourceManager({ENVIRONMENT: Limit(1)}).metrics()}
    for pattern, name in general.items():
        measured = {re.sub(pattern, name, one) for one in measured}
    return measured
