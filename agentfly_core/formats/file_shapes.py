"""Names and shapes of the JSON files of a store. They are checked before a name becomes a path.

A store from a stranger may have valid checksums. A name in it may still be `../precious`.
Files of schema 1, from earlier releases, lack a checksum. Their whole shape is checked. In a
run.json with a checksum only the names are checked.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Annotated, Any, NotRequired

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from agentfly_core.formats.json_value import JSON

logger = logging.getLogger(__name__)
_warned: set[str] = set()
FOLDERS = ("answers", "artifacts", "nights", "plays", "runs", "sweeps")
"""Folders of a store. It is often a project's folder, with folders of other programs in it."""
LONGEST_PART = 255
LONGEST = 1024


def require_relative(name: str) -> str:
    """Return a normalised relative path, such as `weights/model.safetensors`; raise ValueError for
    any other text.
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
    """Return a relative path in one of FOLDERS, such as `runs/demo/run.json`; raise ValueError for
    any other text.
    """
    if require_relative(uri).partition("/")[0] not in FOLDERS:
        raise ValueError(f"got the uri {uri[:80]!r}, expected a path in {', '.join(FOLDERS)}")
    return uri


def require_part(name: str) -> str:
    """Return one part of a path, such as a run's name; raise ValueError for any other text."""
    if "/" in require_relative(name):
        raise ValueError(f"got the name {name[:80]!r}, expected one without '/'")
    return name


Name = Annotated[str, AfterValidator(require_relative)]
Part = Annotated[str, AfterValidator(require_part)]
Uri = Annotated[str, AfterValidator(require_uri)]


class Entry(TypedDict):
    """One file of an artifact."""

    sha256: str
    size: Annotated[int, Field(ge=0)]


class Manifest(TypedDict):
    """MANIFEST.json of an artifact; `stripped` are the files that it was kept without."""

    stage: str
    key: str
    inputs: dict[Name, str]
    files: dict[Name, Entry]
    revision: NotRequired[Mapping[str, Any]]
    stripped: NotRequired[list[str]]


class _Pointer(TypedDict):
    uri: Uri
    digest: str


class _Parent(_Pointer):
    run: Part


class _Revision(TypedDict):
    commit: str | None


class _Science(TypedDict):
    model: str
    steps: int


class _Site(TypedDict):
    name: str
    mlflow_tracking_uri: str


class _Names(TypedDict, total=False):
    experiment: Part
    origin: dict[str, str]
    parent: _Parent | None
    reference: _Pointer | None
    code: _Pointer


class _Run(TypedDict):
    uid: str
    created_ms: int
    experiment: Part
    origin: dict[str, str]
    revision: _Revision
    stages: dict[str, int]
    science: _Science
    site: _Site
    parent: _Parent | None
    reference: NotRequired[_Pointer | None]
    dataset_digest: NotRequired[str]
    dataset_version: NotRequired[str]


class _Point(TypedDict):
    step: int
    time_ms: int
    metrics: dict[str, float]


class _Summary(TypedDict):
    run: str
    experiment: str
    steps: int
    success_before: float
    success_after: float
    interval_before: list[float]
    interval_after: list[float]
    seconds: dict[str, float]


SHAPES: Mapping[str, TypeAdapter[Any]] = {
    "MANIFEST.json": TypeAdapter(Manifest),
    "run.json": TypeAdapter(_Run),
    "start.json": TypeAdapter(_Pointer),
    "links.json": TypeAdapter(dict[str, list[str]]),
    "metrics.json": TypeAdapter(_Point),
    "summary.json": TypeAdapter(_Summary),
}
SEALED: Mapping[str, TypeAdapter[Any]] = {
    "MANIFEST.json": TypeAdapter(Manifest),
    "run.json": TypeAdapter(_Names),
    "start.json": TypeAdapter(_Pointer),
}
"""Shapes of files with a checksum: of a run.json the names only."""


def check_sealed(where: str, value: Mapping[str, JSON]) -> None:
    """Raise ValueError for a file with a name that leads out of its store."""
    if shape := SEALED.get(where.rpartition("/")[2]):
        _check(shape, value)


def check_unsealed(where: str, value: Mapping[str, JSON]) -> None:
    """Raise ValueError unless a file has the shape of its kind; warns, once a process, that no more
    is checked.
    """
    if (shape := SHAPES.get(where.rpartition("/")[2])) is None:
        raise ValueError("it has no checksum, which each release wrote into files of this kind")
    _check(shape, value)
    if not _warned:
        _warned.add(where)
        logger.warning(
            "%s is of a release that wrote no checksums: like all its files, it is read unchecked.",
            where,
        )


def _check(shape: TypeAdapter[Any], value: Mapping[str, JSON]) -> None:
    try:
        shape.validate_python(value, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "it"
        raise ValueError(f"{place}: {first['msg']}") from None
