"""Metrics of stages. They are stored in the artifact of a stage, but the artifact's digest does not
cover them.
"""

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from agentfly_core.store.artifact import Pointer
from agentfly_core.store.store import Store
from agentfly_core.system.files import json_text
from agentfly_core.system.formats.json_value import JSON

FILE = "metrics.json"


@dataclass(frozen=True, slots=True)
class Measured:
    """The measurements of a stage: `Measured(1763740000000, 3.2, {"rollout/reward": 0.62})`.

    `time_ms` is the end of the stage in milliseconds since 1970, and `seconds` is its duration.
    """

    time_ms: int
    seconds: float
    metrics: Mapping[str, float] = field(default_factory=dict)


@contextmanager
def measuring(folder: Path) -> Iterator[dict[str, float]]:
    """Yield a dict for the metrics of a stage. At the end of the `with` block, write the metrics to
    a file.

    The file also has the duration of the block. Infinite values and NaN are left out.
    """
    start = time.monotonic()
    metrics: dict[str, float] = {}
    yield metrics
    finite = {name: value for name, value in metrics.items() if math.isfinite(value)}
    ended: dict[str, JSON] = {
        "time_ms": int(time.time() * 1000),
        "seconds": time.monotonic() - start,
        "metrics": finite,
    }
    (folder / FILE).write_text(json_text(ended))


@contextmanager
def timing(metrics: dict[str, float], name: str) -> Iterator[None]:
    """Add the duration of the `with` block in seconds to `metrics`, under the key `name`."""
    start = time.monotonic()
    yield
    metrics[name] = time.monotonic() - start


def combined(
    stages: Sequence[Measured], prefix: str, combine: Callable[[list[float]], float]
) -> dict[str, float]:
    """Combine the values of each metric in several stages: `combined(stages, "gateway/", sum)`.

    Only metrics with names that begin with `prefix` are included.
    """
    values = defaultdict[str, list[float]](list)
    for name, value in (pair for stage in stages for pair in stage.metrics.items()):
        if name.startswith(prefix):
            values[name].append(value)
    return {name: combine(own) for name, own in values.items()}


def measured(store: Store, artifact: Pointer) -> Measured:
    """Read the measurements of the stage that made an artifact."""
    content = store.part(artifact, FILE)
    assert content is not None, f"{artifact.uri} was published without {FILE}"
    return Measured(content["time_ms"], content["seconds"], content["metrics"])
