"""The store of artifacts (published folders). An artifact is either complete or missing.

A folder is written under a temporary name, gets a MANIFEST.json with the hashes of its files, is
synced to disk, and is then renamed. On object storage, the manifest is uploaded last. Readers check
the files against the manifest.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentfly_core.store.artifact import Artifact, ArtifactKey, Pointer
from agentfly_core.store.manifest import (
    MANIFEST,
    digest_of,
    entry_of,
    manifest_in,
    mismatch,
    unstripped,
    verify,
)
from agentfly_core.system import files
from agentfly_core.system.formats import checksummed_json
from agentfly_core.system.formats.checksummed_json import Damaged
from agentfly_core.system.formats.file_shapes import Manifest, require_uri
from agentfly_core.system.formats.hashing import digest
from agentfly_core.system.formats.json_value import JSON, as_json
from agentfly_core.system.process import mark_alive, own_mark
from agentfly_core.system.revision import revision

if TYPE_CHECKING:
    from agentfly_core.store.object_storage import Remote

logger = logging.getLogger(__name__)
_opened: dict[Path, str] = {}
"""The digest of each artifact that this process has verified or published, by folder."""


@dataclass(frozen=True)
class Store:
    """A store of artifacts in the folder `root`.

    If `remote` is set, the artifacts are on object storage, and the folder is only a cache. For
    example, `Store.at("s3://bucket/prefix", cache)` keeps copies in `cache`. An artifact exists
    only if its manifest is on the object storage.
    """

    root: Path
    remote: Remote | None

    @classmethod
    def at(cls, uri: str, cache: Path) -> Store:
        """Open the store at a path or at an address such as s3://bucket/prefix."""
        if "://" not in uri:
            return cls(Path(uri).resolve(), None)
        # imported here, because the S3 clients take long to import
        from agentfly_core.store.object_storage import Remote

        return cls(cache / digest(uri)[:16], Remote(uri))

    @property
    def uri(self) -> str:
        """The path of the store, or its address on object storage."""
        return self.remote.uri if self.remote else str(self.root)

    def path(self, uri: str) -> Path:
        """Return the local path of `uri`. Raises Damaged if the path leads out of the store."""
        try:
            require_uri(uri)
        except ValueError as error:
            raise Damaged(f"{self.uri}: {error}.") from None
        return files.contained(self.root, uri)

    @contextmanager
    def publish(self, target: ArtifactKey) -> Iterator[Path]:
        """Yield an empty folder. It is published if the `with` block ends without an error.

        If another process has published an artifact with the same key during the block, the
        artifact of the other process is kept.
        """
        path = self.path(target.uri)
        with _unfinished(path) as folder:
            yield folder
            names = sorted(files.file_sizes(folder))
            paths = [folder / name for name in names]
            files.make_readable(folder)
            with ThreadPoolExecutor() as threads:
                entries = dict(zip(names, threads.map(entry_of, paths), strict=True))
                manifest: dict[str, JSON] = {
                    "stage": target.stage,
                    "key": target.key,
                    "inputs": dict(target.inputs),
                    "files": as_json(entries),
                    "revision": revision(),
                }
                sealed = files.json_text(checksummed_json.sealed(manifest))
                # the manifest is written last, so a folder with a manifest has all of its files
                (folder / MANIFEST).write_text(sealed, encoding="utf-8")
                # all at once, because each wait for the disk takes 4 ms
                list(threads.map(files.sync, [*folder.rglob("*"), folder]))
            # a rename is atomic, and all files were synced: after a power cut, the artifact is
            # complete or missing
            _move(folder, path, lambda there: there["key"] == target.key)
            if written := manifest_in(path):
                _opened[path] = digest_of(written)
        if self.remote:
            # the manifest comes last: if the upload is interrupted, readers see that the artifact
            # is missing
            self.remote.upload(path, target.uri, [*names, MANIFEST])

    def find(self, target: ArtifactKey) -> Artifact | None:
        """Return the artifact at `target.uri`.

        Returns None if the artifact is missing or damaged, or if its key is not `target.key`.
        Damage is logged as a warning.
        """
        with _damaged_is_unpublished():
            artifact = self.get(target.uri)
            if artifact is None or artifact.key.key != target.key:
                return None
            self._checked(artifact)
            return artifact
        return None

    def holds(self, uri: str) -> bool:
        """Whether an artifact is published at `uri`.

        If the artifact's manifest is damaged, a warning is logged and the result is False.
        """
        with _damaged_is_unpublished():
            return self.get(uri) is not None
        return False

    def get(self, uri: str) -> Artifact | None:
        """Return the artifact at `uri`, or None if it is missing.

        Raises Damaged if its manifest is damaged.
        """
        manifest: Manifest | None = self.read_json(f"{uri}/{MANIFEST}")
        return Artifact(uri, digest_of(manifest), manifest) if manifest else None

    def artifact(self, uri: str) -> Artifact:
        """Return the artifact at `uri`.

        Raises FileNotFoundError if it is missing, and Damaged if its manifest is damaged.
        """
        if (artifact := self.get(uri)) is None:
            raise FileNotFoundError(f"Nothing is published under {uri!r} in {self.uri}.")
        return artifact

    def resolve(self, pointer: Pointer) -> Artifact:
        """Return the artifact to which a pointer refers.

        Raises FileNotFoundError if the artifact is missing. Raises Damaged if its manifest is
        damaged, or if its digest differs from the pointer's digest.
        """
        if isinstance(pointer, Artifact):
            return pointer
        artifact = self.artifact(pointer.uri)
        self._require(pointer, artifact.digest)
        return artifact

    def open(self, pointer: Pointer) -> Path:
        """Return a local folder with the files of an artifact.

        The files of an artifact are verified once per process, unless the process has published the
        artifact. Raises FileNotFoundError for a missing artifact, Damaged for a damaged artifact,
        and ValueError if some files of the artifact were stripped (see `strip`).
        """
        folder = self._checked(pointer)
        if (manifest := manifest_in(folder)) and (stripped := manifest.get("stripped")):
            raise ValueError(
                f"{pointer.uri} in {self.uri} lacks {', '.join(stripped)}. Weights of old policies "
                "are removed to save space. Use a later step."
            )
        return folder

    def strip(self, uri: str, pattern: str) -> bool:
        """Remove the files that match a pattern from a published artifact.

        The manifest then lists these files as `stripped`. Returns False if no file matches, or if
        an earlier call has stripped the artifact.
        """
        manifest = self.artifact(uri).manifest
        stripped = sorted(name for name in manifest["files"] if fnmatch(name, pattern))
        # The manifest is changed first. If the process is then killed, some superfluous files are
        # left. In the reverse order, the artifact would look damaged.
        self.write_json(f"{uri}/{MANIFEST}", as_json({**manifest, "stripped": stripped}))
        for name in stripped:
            self.remove(f"{uri}/{name}")
        return bool(stripped) and "stripped" not in manifest

    def _checked(self, pointer: Pointer) -> Path:
        folder = self.path(pointer.uri)
        # verified only once, because hashing gigabytes of weights at each use would be slow
        if _opened.get(folder) == pointer.digest:
            return folder
        try:
            self._require(pointer, digest_of(verify(folder)))
        except Damaged:
            if not self.remote:
                raise
            self._download(pointer, folder)
            self._require(pointer, digest_of(verify(folder)))
        _opened[folder] = pointer.digest
        return folder

    def _download(self, pointer: Pointer, folder: Path) -> None:
        assert self.remote is not None
        current = self.artifact(pointer.uri)  # read again: files may have been stripped meanwhile
        self._require(pointer, current.digest)
        sizes = {name: entry["size"] for name, entry in unstripped(current.manifest).items()}
        with _unfinished(folder) as copy:
            self.remote.download(pointer.uri, copy, sizes)
            files.write_json(copy / MANIFEST, checksummed_json.sealed(as_json(current.manifest)))
            _move(copy, folder, lambda there: digest_of(there) == pointer.digest)

    def _require(self, pointer: Pointer, digest: str) -> None:
        if digest != pointer.digest:
            raise Damaged(
                f"{pointer.uri} in {self.uri} has changed: its digest is {digest}, expected "
                f"{pointer.digest}. Restore it from a copy of the store."
            )

    def part(self, pointer: Pointer, name: str) -> Any:
        """Read and verify the JSON file `name` of an artifact.

        Returns None if the file is missing. Raises Damaged if the file was changed.
        """
        if (entry := self.resolve(pointer).manifest["files"].get(name)) is None:
            return None
        # of a local file, only as many bytes as the manifest states are read: a replaced file
        # cannot fill the memory
        written = self._content(f"{pointer.uri}/{name}", entry["size"])
        # only this small file is checked; the artifact is neither downloaded nor hashed
        if written is None or hashlib.sha256(written).hexdigest() != entry["sha256"]:
            raise Damaged(mismatch(f"{self.uri}/{pointer.uri}/{name}"))
        return json.loads(written)

    def write_json(self, uri: str, value: Mapping[str, JSON]) -> None:
        """Write a JSON file with a checksum. The write is atomic."""
        self.write_text(uri, files.json_text(checksummed_json.sealed(value)))

    def write_text(self, uri: str, text: str) -> None:
        """Write a text file. The write is atomic."""
        files.write_text(self.path(uri), text)
        if self.remote:
            self.remote.write(uri, text)

    def create_json(self, uri: str, value: Mapping[str, JSON]) -> bool:
        """Create a JSON file atomically. Returns False if the file already exists."""
        text, path = files.json_text(checksummed_json.sealed(value)), self.path(uri)
        return self.remote.create(uri, text) if self.remote else files.create_text(path, text)

    def read_json(self, uri: str) -> Any:
        """Read a file that `write_json` wrote, or return None if it is missing.

        Raises Damaged if the file is damaged. The message names the file.
        """
        if (written := self._content(uri)) is None:
            return None
        return checksummed_json.value_of(written, f"{self.uri}/{uri}")

    def _content(self, uri: str, largest: int = files.LARGEST) -> bytes | None:
        path = self.path(uri)
        return self.remote.content(uri) if self.remote else files.read_regular(path, largest)

    def names(self, uri: str) -> list[str]:
        """Return the sorted names of the files and folders directly below `uri`.

        Hidden names, such as those of unfinished folders, are left out.
        """
        folder = self.path(uri)
        local = os.listdir(folder) if folder.is_dir() else []
        names = self.remote.names(uri) if self.remote else local
        return sorted(name for name in names if not name.startswith("."))

    def remove(self, uri: str) -> None:
        """Remove a file or an artifact.

        The manifest is removed first, because a partly removed artifact must not look complete.
        """
        path = self.path(uri)
        if self.remote:
            self.remote.remove(uri, first=MANIFEST)
        with suppress(FileNotFoundError, NotADirectoryError):
            (path / MANIFEST).unlink()
        _remove(path)
        _opened.pop(path, None)

    def sweep(self, uri: str) -> int:
        """Remove the unfinished folders and files below `uri` that dead processes have left.

        Returns how many were removed.
        """
        left: list[Path] = []
        # folders that vanish meanwhile are skipped
        for place, folders, names in os.walk(self.path(uri)):
            left += [Path(place, name) for name in (*folders, *names) if name.startswith(".tmp-")]
            folders[:] = [name for name in folders if not name.startswith(".tmp-")]
        # the name of an unfinished folder identifies the process that writes the folder
        dead = [path for path in left if not mark_alive(path.name)]
        for path in dead:
            _remove(path)
        return len(dead)


@contextmanager
def _damaged_is_unpublished() -> Iterator[None]:
    """Catch the error Damaged of the `with` block, and log it as a warning.

    The damaged artifact then counts as unpublished.
    """
    try:
        yield
    except Damaged as damage:
        logger.warning(
            "%s The artifact counts as unpublished, and is recomputed if a stage needs it.", damage
        )


@contextmanager
def _unfinished(path: Path) -> Iterator[Path]:
    """Yield an empty temporary folder next to `path`.

    The folder is removed at the end of the `with` block, unless the block has moved the folder.
    """
    # threads may fetch the same artifact at once
    folder = path.with_name(f".tmp-{threading.get_ident()}-{path.name}-{own_mark()}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        with files.naming(path):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _move(folder: Path, path: Path, same: Callable[[Manifest], bool]) -> None:
    """Rename a folder to `path`.

    If `path` already contains an artifact, `same` is called with the manifest of this artifact. If
    `same` returns True, the artifact is kept, and `folder` keeps its name. Otherwise the artifact
    is replaced. A damaged artifact at `path` is kept under a new name.
    """
    if os.path.lexists(path):
        try:
            # another process was faster; its folder is kept, because readers may have it open
            if same(verify(path)):
                return
        except Damaged as damage:  # it is kept, because only the user may delete it
            kept = files.set_aside(path)
            logger.warning("%s The damaged folder is kept as %s; you may remove it.", damage, kept)
        else:
            shutil.rmtree(path)
    try:
        folder.rename(path)
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:
            raise
        _move(folder, path, same)  # another process published just now
    else:
        files.sync(path.parent)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
