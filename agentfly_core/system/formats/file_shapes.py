"""Check the structure of a store's JSON files, and the names in them, before names become paths.

A store that another user wrote may have valid checksums and still contain a name such as
`../precious`.
"""

from collections.abc import Mapping
from typing import Annotated, Any, NotRequired

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from agentfly_core.system.formats.json_value import JSON

FOLDERS = ("answers", "artifacts", "nights", "plays", "runs")
"""The folders of a store. A store is often a project's folder, which also has other folders."""
LONGEST_PART = 255
LONGEST = 1024


def require_relative(name: str) -> str:
    """Return a normalised relative path such as `a/model.safetensors`, or raise ValueError."""
    parts = name.split("/")
    if (
        not name.isprintable()
        or len(name) > LONGEST
        or any(part in ("", ".", "..") or len(part.encode()) > LONGEST_PART for part in parts)
    ):
        raise ValueError(
            f"got the name {name[:80]!r}, expected a relative path without '.', '..' or "
            "unprintable characters"
        )
    return name


def require_uri(uri: str) -> str:
    """Return a path in one of FOLDERS such as `runs/demo/run.json`, or raise ValueError."""
    if require_relative(uri).partition("/")[0] not in FOLDERS:
        raise ValueError(f"got the uri {uri[:80]!r}, expected a path in {', '.join(FOLDERS)}")
    return uri


def require_part(name: str) -> str:
    """Return one part of a path, such as a run's name, or raise ValueError."""
    if "/" in require_relative(name):
        raise ValueError(f"got the name {name[:80]!r}, expected a name without '/'")
    return name


FileName = Annotated[str, AfterValidator(require_relative)]
PathPart = Annotated[str, AfterValidator(require_part)]
Uri = Annotated[str, AfterValidator(require_uri)]


class FileEntry(TypedDict):
    """One file of an artifact."""

    sha256: str
    size: Annotated[int, Field(ge=0)]


class Manifest(TypedDict):
    """MANIFEST.json of an artifact. `stripped` lists files that were removed after publication."""

    stage: str
    key: str
    inputs: dict[FileName, str]
    files: dict[FileName, FileEntry]
    revision: NotRequired[Mapping[str, Any]]
    stripped: NotRequired[list[str]]


class ArtifactRecord(TypedDict):
    """An artifact: `{"uri": "runs/demo/steps/000040/policy", "digest": "9f2c...e1"}`."""

    uri: Uri
    digest: str


class ParentPolicy(ArtifactRecord):
    """A policy of another run."""

    run: PathPart


class StartRecord(ArtifactRecord):
    """start.json: the policy before the first step, and the outputs of all earlier stages."""

    before: NotRequired[dict[str, list[ArtifactRecord]]]


class CodeRecord(TypedDict):
    """The code of a run:

    - `modules`: digests of its modules, `{"my_tools": "9f2c..."}`
    - `parts`: digests of their functions, classes and files, `{"my_tools.look_up": "77b0c2a1"}`
    - `repository`: the state of its git repository, `{"commit": "4f0c...", "dirty": ""}`
    """

    modules: Mapping[str, str]
    parts: Mapping[str, str]
    repository: Mapping[str, str]


class _Names(TypedDict, total=False):
    experiment: PathPart
    origin: dict[str, str]
    parent: ParentPolicy | None
    reference: ArtifactRecord | None
    code: CodeRecord


SHAPES: Mapping[str, TypeAdapter[Any]] = {
    "MANIFEST.json": TypeAdapter(Manifest),
    "run.json": TypeAdapter(_Names),
    "start.json": TypeAdapter(StartRecord),
}
"""The expected structure by file name. Of run.json, only names and references are checked."""


def check(where: str, value: Mapping[str, JSON]) -> None:
    """Raise ValueError if a file has a wrong structure, or contains a name that leads out of the
    store.
    """
    if (shape := SHAPES.get(where.rpartition("/")[2])) is None:
        return
    try:
        shape.validate_python(value, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "it"
        raise ValueError(f"{place}: {first['msg']}") from None
