"""The small files in results/ that DVC keeps instead of an artifact: its place and its digest."""

from __future__ import annotations

from pathlib import Path

from agentfly_core.store.artifact import Pointer
from agentfly_core.system.files import read_regular, write_json
from agentfly_core.system.formats.checksummed_json import json_of


def write(path: Path, artifact: Pointer) -> None:
    """Point to an artifact."""
    write_json(path, {"uri": artifact.uri, "digest": artifact.digest})


def read(path: Path) -> Pointer:
    """Return the artifact that a file points to; raises Damaged for any other file."""
    if (content := read_regular(path)) is None:
        raise FileNotFoundError(f"There is no file {path}.")
    return Pointer.of(json_of(content, str(path)), str(path))
