"""References to published folders: pointers, artifacts (with their manifests), and cache keys."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from agentfly_core.system.formats.checksummed_json import Damaged
from agentfly_core.system.formats.file_shapes import Manifest, require_uri


@dataclass(frozen=True, slots=True, eq=False)
class Pointer:
    """The path of an artifact in the store (`uri`), and the digest of its content:
    `Pointer("runs/demo/steps/000007/policy", "9f2c...e1")`.
    """

    uri: str
    digest: str

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Pointer):
            return NotImplemented
        return (self.uri, self.digest) == (other.uri, other.digest)

    def __hash__(self) -> int:
        return hash((self.uri, self.digest))

    @classmethod
    def of(cls, written: object, where: str) -> Pointer:
        """Parse a pointer that was read from the file `where`.

        Raises Damaged if the pointer is invalid.
        """
        match written:
            case {"uri": str(uri), "digest": str(digest)}:
                with suppress(ValueError):
                    return Pointer(require_uri(uri), digest)
        raise Damaged(
            f"{where} points to {written!r:.200}, expected "
            '{"uri": <path within the store>, "digest": <text>}.'
        )

    def to_json(self) -> dict[str, str]:
        """Return the pointer as JSON: `{"uri": "runs/demo/steps/000007/policy", "digest":
        "9f2c...e1"}`.
        """
        return {"uri": self.uri, "digest": self.digest}


@dataclass(frozen=True, slots=True, eq=False)
class Artifact(Pointer):
    """A published folder with its manifest.

    An artifact is also a Pointer (a path in the store and a digest). It is equal to every artifact
    and pointer with the same path and digest.
    """

    manifest: Manifest = field(repr=False)

    @property
    def key(self) -> ArtifactKey:
        """The key under which the artifact was published."""
        manifest = self.manifest
        return ArtifactKey(self.uri, manifest["stage"], manifest["key"], manifest["inputs"])


@dataclass(frozen=True, slots=True)
class ArtifactKey:
    """The path and the cache key of a stage's output: `ArtifactKey("runs/demo/steps/000007/scored",
    "score", "a41f...", {"rollout-000": "9f2c..."})`.

    `inputs` maps the name of each input of the stage to the input's digest.
    """

    uri: str
    stage: str
    key: str
    inputs: Mapping[str, str]
