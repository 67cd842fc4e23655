"""JSON values, and error messages for values that are not JSON."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from agentfly_core.system.formats.text import fault

JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"
"""A JSON value. In values that were read from files, sequences are lists and mappings are dicts."""


def as_json(typed: Mapping[str, Any]) -> Mapping[str, JSON]:
    """Return a TypedDict as a mapping of JSON values. Without this function, mypy needs a cast."""
    return typed


def flat(value: Mapping[str, JSON], prefix: str = "") -> dict[str, JSON]:
    """Flatten a nested mapping to dotted keys: `{"update": {"epochs": 2}}` -> `{"update.epochs":
    2}`.
    """
    flattened: dict[str, JSON] = {}
    for key, item in value.items():
        if isinstance(item, Mapping) and item:
            flattened |= flat(item, f"{prefix}{key}.")
        else:
            flattened[f"{prefix}{key}"] = item
    return flattened


def map_strings(value: JSON, change: Callable[[str], str]) -> JSON:
    """Apply `change` to all strings of a JSON value, including keys."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {change(key): map_strings(item, change) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [map_strings(item, change) for item in value]
    return value


def require_levels(value: JSON, most: int, around: int = 0) -> None:
    """Raise ValueError if a value is nested more than `most` levels deep, or contains itself.

    `around` is the number of levels that enclose `value`. Only recursive calls set it.
    """
    if isinstance(value, dict | list):
        if around == most:
            raise ValueError(f"it is more than {most} levels deep")
        for item in value.values() if isinstance(value, dict) else value:
            require_levels(item, most, around + 1)


def json_fault(value: object) -> str | None:
    """Return why a value cannot be stored as JSON, or None if it can be stored.

    An example is "cannot be stored as JSON: TypeError: Object of type date is not JSON
    serializable". Tuples are allowed, and become lists.
    """
    try:
        json.dumps(value, allow_nan=False)
        return _other_key(value)
    except Exception as error:  # an author's type may raise any error
        return f"cannot be stored as JSON: {fault(error)}"


def _other_key(value: object) -> str | None:
    """Return an error text for a key that is not a string, or None if all keys are strings.

    JSON would convert such a key to a string.
    """
    items: Iterable[object] = ()
    if isinstance(value, dict):
        if others := [key for key in value if not isinstance(key, str)]:
            return f"has the key {others[0]!r} ({type(others[0]).__name__}), expected text"
        items = value.values()
    elif isinstance(value, list | tuple):
        items = value
    return next(filter(None, map(_other_key, items)), None)
