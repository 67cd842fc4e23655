"""The type of what JSON can hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"
"""A JSON value; what is read from a file has lists and dicts where others may be given."""


def as_json(typed: Mapping[str, Any]) -> Mapping[str, JSON]:
    """A TypedDict whose values are JSON as what it is, which mypy does not see."""
    return typed
