"""Check the structure of the JSON files in a store, and the names in these files.

Some of the names become paths. If another user has written a store, its files may have valid
checksums and still contain a name such as `../precious`.
"""

from collections.abc import Mapping
from typing import Annotated, Any, NotRequired

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from agentfly_core.system.formats.json_value import JSON

FOLDERS = ("answers", "artifacts", "nights", "plays", "runs")
"""The names of a store's folders. Only these folders belong to the store."""
LONGEST_PART = 255
LONGEST = 1024


def require_relative(name: str) -> str:
    """Return `name` if it is a normalised relative path such as `a/model.safetensors`.

    Otherwise raise ValueError.
    """
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
    """Return `uri` if it is a path in one of the store's folders, such as `runs/demo/run.json`.

    Otherwise raise ValueError.
    """
    if require_relative(uri).partition("/")[0] not in FOLDERS:
        raise ValueError(f"got the uri {uri[:80]!r}, expected a path in {', '.join(FOLDERS)}")
    return uri


def require_part(name: str) -> str:
    """Return `name` if it is a single part of a path, such as the name of a run.

    Otherwise raise ValueError.
    """
    if "/" in require_relative(name):
        raise ValueError(f"got the name {name[:80]!r}, expected a name without '/'")
    return name


FileName = Annotated[str, AfterValidator(require_relative)]
PathPart = Annotated[str, AfterValidator(require_part)]
Uri = Annotated[str, AfterValidator(require_uri)]


class FileEntry(TypedDict):
    """The SHA-256 digest and the size in bytes of a file of an artifact."""

    sha256: str
    size: Annotated[int, Field(ge=0)]


class Manifest(TypedDict):
    """The content of MANIFEST.json of an artifact.

    `stripped` lists files that were removed after the artifact was published.
    """

    stage: str
    key: str
    inputs: dict[FileName, str]
    files: dict[FileName, FileEntry]
    revision: NotRequired[Mapping[str, Any]]
    stripped: NotRequired[list[str]]


class ArtifactRecord(TypedDict):
    """A reference to an artifact: `{"uri": "runs/demo/steps/000040/policy", "digest":
    "9f2c...e1"}`.
    """

    uri: Uri
    digest: str


class ParentPolicy(ArtifactRecord):
    """A reference to a policy of another run. `run` is the name of that run."""

    run: PathPart


class StartRecord(ArtifactRecord):
    """The content of start.json: a reference to the policy with which the steps begin.

    `before` maps the name of each stage before the first step, such as "prepare", to references to
    the stage's outputs.
    """

    before: NotRequired[dict[str, list[ArtifactRecord]]]


class CodeRecord(TypedDict):
    """Digests of the author's code that a run uses:

    - `modules`: a digest for each module: `{"my_tools": "9f2c..."}`
    - `parts`: a digest for each function, class and file of the modules: `{"my_tools.look_up":
      "77b0c2a1"}`
    - `repository`: the state of the git repository: `{"commit": "4f0c...", "dirty": ""}`
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
"""For each file name, the expected structure of the file. In a run.json, only names, references
to artifacts and the digests of code are checked.
"""


def check(where: str, value: Mapping[str, JSON]) -> None:
    """Raise ValueError if the content `value` of a file has a wrong structure.

    The error is also raised for a name in the content that would be a path outside of the store,
    such as `../precious`. `where` is the path of the checked file.
    """
    if (shape := SHAPES.get(where.rpartition("/")[2])) is None:
        return
    try:
        shape.validate_python(value, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "it"
        raise ValueError(f"{place}: {first['msg']}") from None
