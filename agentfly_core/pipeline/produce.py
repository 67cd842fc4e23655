"""Produce the output of a stage.

An output that the store already contains is reused. Any other output is made and published.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from agentfly_core.store.artifact import Artifact, ArtifactKey
from agentfly_core.store.stage_metrics import measuring
from agentfly_core.store.store import Store

Make = Callable[[Path], Mapping[str, float]]
"""A function that fills an empty folder. It returns metrics, such as `{"time/swap": 0.4}`."""


class Reused(Artifact):
    """An artifact that was found in the store, instead of being produced."""

    __slots__ = ()


def produce(store: Store, target: ArtifactKey, make: Make) -> Artifact:
    """Return the artifact of a key. If the store lacks it, make and publish it.

    An artifact that was already in the store is returned as `Reused`. If `make` raises an error,
    this function publishes no artifact.
    """
    return find(store, target) or publish(store, target, make)


def find(store: Store, target: ArtifactKey) -> Reused | None:
    """Return the artifact of a key, or None if the artifact is missing or damaged."""
    artifact = store.find(target)
    return Reused(artifact.uri, artifact.digest, artifact.manifest) if artifact else None


def publish(store: Store, target: ArtifactKey, make: Make) -> Artifact:
    """Publish the folder that `make` fills.

    The file `metrics.json` in this folder has the metrics that `make` returns, the duration of
    `make` in seconds, and the time of its end.
    """
    with store.publish(target) as folder, measuring(folder) as metrics:
        metrics |= make(folder)
    return store.artifact(target.uri)
