"""JSON values, and the faults of others."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from agentfly_core.system.formats.text import fault, shown

JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"
"""A JSON value; values read from files have lists and dicts."""
EXPECTED = "expected text, finite numbers, booleans, None, and lists and dicts of these"


def as_json(typed: Mapping[str, Any]) -> Mapping[str, JSON]:
    """A TypedDict of JSON values; mypy does not accept it without this."""
    return typed


def map_strings(value: JSON, change: Callable[[str], str]) -> JSON:
    """Change all texts of a JSON value, keys too."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {change(key): map_strings(item, change) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [map_strings(item, change) for item in value]
    return value


def json_fault(value: object) -> str | None:
    """Describe the first part of a value that JSON cannot hold, with its place; None without one.

    For `{"seen": [date(2026, 11, 23)]}`: "['seen'][0] is datetime.date(2026, 11, 23) (date),
    expected text, ...". Tuples pass and are read back as lists.
    """
    try:
        return _fault(value, "")
    except RecursionError:
        return " is nested too deep or contains itself"


def _fault(value: object, place: str) -> str | None:
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                return f"{place} has the key {shown(key)} ({type(key).__name__}), expected text"
            if message := _fault(item, f"{place}[{shown(key)}]"):
                return message
    elif isinstance(value, list | tuple):
        messages = (_fault(item, f"{place}[{number}]") for number, item in enumerate(value))
        return next(filter(None, messages), None)
    else:
        try:
            json.dumps(value, allow_nan=False)
        except Exception as error:  # an author's type may raise anything
            because = "" if isinstance(error, TypeError) else f": {fault(error)}"
            return f"{place} is {shown(value)} ({type(value).__name__}), {EXPECTED}{because}"
    return None
