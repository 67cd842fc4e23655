"""Names of published directories: pointers, artifacts with their manifest, and keys."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from agentfly_core.system.formats.checksummed_json import Damaged
from agentfly_core.system.formats.file_shapes import Manifest, require_uri


@dataclass(frozen=True, slots=True, eq=False)
class Pointer:
    """Uri in the store and digest: `Pointer("runs/demo/steps/000007/policy", "9f2c...e1")`."""

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
        """The pointer in a file; raises Damaged with its name for anything else."""
        match written:
            case {"uri": str(uri), "digest": str(digest)}:
                with suppress(ValueError):
                    return Pointer(require_uri(uri), digest)
        raise Damaged(
            f"{where} points to {written!r:.200}, expected "
            '{"uri": <path within the store>, "digest": <text>}.'
        )

    def to_json(self) -> dict[str, str]:
        """`{"uri": "runs/demo/steps/000007/policy", "digest": "9f2c...e1"}`."""
        return {"uri": self.uri, "digest": self.digest}


@dataclass(frozen=True, slots=True, eq=False)
class Artifact(Pointer):
    """A published directory with its manifest; equals a pointer to it."""

    manifest: Manifest = field(repr=False)

    @property
    def key(self) -> ArtifactKey:
        """The key of its publication."""
        manifest = self.manifest
        return ArtifactKey(self.uri, manifest["stage"], manifest["key"], manifest["inputs"])


@dataclass(frozen=True, slots=True)
class ArtifactKey:
    """Place and key of a stage's output: `ArtifactKey("runs/demo/steps/000007/scored", "score",
    "a41f...", {"rollout-000": "9f2c..."})`; `inputs` are digests by name.
    """

    uri: str
    stage: str
    key: str
    inputs: Mapping[str, str]
