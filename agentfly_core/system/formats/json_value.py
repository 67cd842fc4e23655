"""The type of what JSON can hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"
"""A JSON value; what is read from a file has lists and dicts where others may be given."""


def as_json(typed: Mapping[str, Any]) -> Mapping[str, JSON]:
    """A TypedDict whose values are JSON as what it is, which mypy does not see."""
    return typed


def map_strings(value: JSON, change: Callable[[str], str]) -> JSON:
    """A JSON value with each of its texts changed, keys too."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {change(key): map_strings(item, change) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [map_strings(item, change) for item in value]
    return value
