"""Artifacts copied from one store to another, where they keep their place, key and digest."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from agentfly_core.artifacts.store import MANIFEST, Artifact, Store


def copy(artifacts: Sequence[Artifact], source: Store, target: Store) -> list[Artifact]:
    """Copy what the target lacks, whole or not at all, and return it; raises Damaged for an
    artifact that does not verify, and ValueError for one that was kept without its weights.
    """
    copied = []
    for artifact in artifacts:
        key = source.key_of(artifact.uri)
        if target.find(key) == artifact:
            continue
        with target.publish(key) as folder:
            found = source.open(artifact)
            shutil.copytree(
                found, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(MANIFEST)
            )
        copied.append(artifact)
    return copied


def copy_json(uri: str, source: Store, target: Store) -> None:
    """Copy a JSON file beside the artifacts, if there is one."""
    if (value := source.read_json(uri)) is not None:
        target.write_json(uri, value)
