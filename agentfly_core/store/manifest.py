"""MANIFEST.json of a published folder, which lists the sizes and hashes of the folder's files."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

from agentfly_core.system import files
from agentfly_core.system.formats import checksummed_json
from agentfly_core.system.formats.checksummed_json import Damaged
from agentfly_core.system.formats.file_shapes import FileEntry, Manifest
from agentfly_core.system.formats.hashing import digest

MANIFEST = "MANIFEST.json"
OUTSIDE_DIGEST = frozenset({"timings.parquet", "metrics.json"})
"""Files that the digest of an artifact does not cover, because a repeated run writes different
contents.
"""


def verify(folder: Path) -> Manifest:
    """Check the files of a published folder against the folder's manifest. Return the manifest.

    Raises Damaged if a file is changed, missing or not listed. Links, devices and pipes also raise
    Damaged.
    """
    if (manifest := manifest_in(folder)) is None:
        raise Damaged(f"{folder} has no {MANIFEST}: the folder was not published completely.")
    sizes, entries = files.file_sizes(folder), unstripped(manifest)
    for name in sizes.keys() - manifest["files"].keys() - {MANIFEST}:
        if not name.rpartition("/")[2].startswith("."):  # such as .nfs0001 on a network disk
            raise Damaged(
                f"{folder / name} does not belong to this folder, because {MANIFEST} does not "
                "list it. Remove the file."
            )
    for name, entry in entries.items():
        if sizes.get(name) != entry["size"]:
            raise Damaged(mismatch(str(folder / name)))
    paths = [folder / name for name in entries]
    with ThreadPoolExecutor() as threads:
        hashed = threads.map(files.sha256, paths)
        for path, entry, sha256 in zip(paths, entries.values(), hashed, strict=True):
            if sha256 != entry["sha256"]:
                raise Damaged(mismatch(str(path)))
    return manifest


def unstripped(manifest: Manifest) -> dict[str, FileEntry]:
    """Return the manifest's entries of all files except those that were removed (stripped)."""
    stripped = manifest.get("stripped", [])
    return {name: entry for name, entry in manifest["files"].items() if name not in stripped}


def mismatch(path: str) -> str:
    """Return the error message for a file that is missing or differs from its manifest entry."""
    return f"{path} is missing, or its size or checksum differs from {MANIFEST}."


def entry_of(path: Path) -> FileEntry:
    """Return the entry of a file for the manifest: its SHA-256 digest and its size."""
    return FileEntry(sha256=files.sha256(path), size=path.stat().st_size)


def digest_of(manifest: Manifest) -> str:
    """Compute the digest of an artifact from its stage, its key and the hashes of its files.

    Files in OUTSIDE_DIGEST are left out.
    """
    hashes = {
        name: entry["sha256"]
        for name, entry in manifest["files"].items()
        if name not in OUTSIDE_DIGEST
    }
    return digest({"stage": manifest["stage"], "key": manifest["key"], "files": hashes})


def manifest_in(folder: Path) -> Manifest | None:
    """Read the manifest of a local folder, or return None if the manifest is missing.

    Raises Damaged if the manifest is damaged.
    """
    if (written := files.read_regular(folder / MANIFEST)) is None:
        return None
    # `value_of` checks the type
    return cast(Manifest, checksummed_json.value_of(written, str(folder / MANIFEST)))
