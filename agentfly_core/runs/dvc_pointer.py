"""The small files in results/ that DVC keeps instead of an artifact: its place and its digest."""

from __future__ import annotations

from pathlib import Path

from agentfly_core.artifacts.store import Artifact
from agentfly_core.formats.checksummed_json import Damaged, json_of
from agentfly_core.system.files import write_json


def write(path: Path, artifact: Artifact) -> None:
    """Point to an artifact."""
    write_json(path, {"uri": artifact.uri, "digest": artifact.digest})


def read(path: Path) -> Artifact:
    """The artifact that a file points to; raises Damaged for a file that is no pointer."""
    match json_of(path.read_bytes(), str(path)):
        case {"uri": str(uri), "digest": str(digest)}:
            return Artifact(uri, digest)
        case found:
            raise Damaged(
                f"{path} holds the keys {[*found]}, expected a pointer: "
                f'{{"uri": <text>, "digest": <text>}}.'
            )
