"""Copy artifacts to other stores. A copy has the same path, key and digest as the original."""

import os
import shutil
from collections.abc import Sequence

from agentfly_core.store.artifact import Artifact, Pointer
from agentfly_core.store.manifest import unstripped
from agentfly_core.store.store import Store
from agentfly_core.system import files


def copy(artifacts: Sequence[Pointer], source: Store, target: Store) -> list[Artifact]:
    """Copy the artifacts that the store `target` lacks, and return the copied artifacts.

    All artifacts are checked before the first copy. Raises Damaged if an artifact is damaged.
    Raises ValueError if files of an artifact were stripped (removed after publication), or if
    `target` has something else at the path of an artifact.
    """
    stored = map(source.resolve, artifacts)
    lacking = [artifact for artifact in stored if target.find(artifact.key) != artifact]
    for artifact in lacking:
        _require_free(target, artifact.uri)
        source.open(artifact)
    for artifact in lacking:
        opened = source.open(artifact)
        with target.publish(artifact.key) as folder:
            for name in sorted(unstripped(artifact.manifest)):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(files.contained(opened, name), folder / name)
    return lacking


def _require_free(target: Store, uri: str) -> None:
    """Raise ValueError if the store `target` already has a file or a folder at the path `uri`.

    Also raise ValueError if the path is within the folder of an existing artifact.
    """
    parts = uri.split("/")
    places = ["/".join(parts[:end]) for end in range(2, len(parts) + 1)]
    taken = target.remote is None and os.path.lexists(target.path(uri))
    if taken or any(map(target.holds, places)):
        raise ValueError(
            f"{target.uri}/{uri} already exists, but differs from the artifact to copy. Move that "
            "folder away, and run the same command again."
        )


def copy_json(uri: str, source: Store, target: Store) -> None:
    """Copy a JSON file from the store `source` to the store `target`, if the file exists."""
    if (value := source.read_json(uri)) is not None:
        target.write_json(uri, value)
