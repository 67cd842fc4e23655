"""Produce a stage's output: find it in the store, or make, measure and publish it."""

from collections.abc import Callable, Mapping
from pathlib import Path

from agentfly_core.store.artifact import Artifact, ArtifactKey
from agentfly_core.store.stage_metrics import measuring
from agentfly_core.store.store import Store

Make = Callable[[Path], Mapping[str, float]]
"""A function that fills an empty folder and returns its metrics: `{"time/swap": 0.4}`."""


class Reused(Artifact):
    """An artifact that was published before its stage ran."""

    __slots__ = ()


def produce(store: Store, target: ArtifactKey, make: Make) -> Artifact:
    """Return the artifact of a key. If the store lacks it, make and publish it; else it is
    `Reused`.

    Nothing is published if `make` raises.
    """
    return find(store, target) or publish(store, target, make)


def find(store: Store, target: ArtifactKey) -> Reused | None:
    """Return the artifact of a key if it is in the store and intact, else None."""
    artifact = store.find(target)
    return reused(artifact) if artifact else None


def reused(artifact: Artifact) -> Reused:
    """Return the artifact, marked as published earlier."""
    return Reused(artifact.uri, artifact.digest, artifact.manifest)


def publish(store: Store, target: ArtifactKey, make: Make) -> Artifact:
    """Publish the folder that `make` fills. Its metrics and duration are in `metrics.json`."""
    with store.publish(target) as folder, measuring(folder) as metrics:
        metrics |= make(folder)
    return store.artifact(target.uri)
