"""JSON files of releases without checksums: accepted when they have those releases' schema."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, NotRequired

from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from agentfly_core.formats.json_value import JSON

logger = logging.getLogger(__name__)
_warned: set[str] = set()


class _Entry(TypedDict):
    sha256: str
    size: int


class _Manifest(TypedDict):
    stage: str
    key: str
    inputs: dict[str, str]
    files: dict[str, _Entry]
    stripped: NotRequired[list[str]]


class _Pointer(TypedDict):
    uri: str
    digest: str


class _Parent(_Pointer):
    run: str


class _Revision(TypedDict):
    commit: str | None


class _Science(TypedDict):
    model: str
    steps: int


class _Site(TypedDict):
    name: str
    mlflow_tracking_uri: str


class _Run(TypedDict):
    uid: str
    created_ms: int
    experiment: str
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
    "MANIFEST.json": TypeAdapter(_Manifest),
    "run.json": TypeAdapter(_Run),
    "start.json": TypeAdapter(_Pointer),
    "links.json": TypeAdapter(dict[str, list[str]]),
    "metrics.json": TypeAdapter(_Point),
    "summary.json": TypeAdapter(_Summary),
}


def check(where: str, value: Mapping[str, JSON]) -> None:
    """Raise ValueError unless a file has the shape of its kind; warns, once a process, that no more
    is checked.
    """
    shape = SHAPES.get(where.rpartition("/")[2])
    if shape is None:
        raise ValueError("it has no checksum, which each release wrote into files of this kind")
    try:
        shape.validate_python(value, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "it"
        raise ValueError(f"{place}: {first['msg']}") from None
    if not _warned:
        _warned.add(where)
        logger.warning(
            "%s is of a release that wrote no checksums: like all its files, it is read unchecked.",
            where,
        )
