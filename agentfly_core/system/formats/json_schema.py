"""JSON schemas without references, which small models cannot follow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_PREFIX = "#/$defs/"
_MAPPINGS = ("properties", "patternProperties")
_VALUES = ("default", "const", "enum", "examples")
_FOR_REFERENCES = ("$defs", "discriminator")


def without_references(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON schema with each reference replaced by what it refers to.

    `{"$ref": "#/$defs/Box", "description": "the box"}` becomes `{"type": "object", ...,
    "description": "the box"}`. Raises ValueError for a type that holds itself.
    """
    inlined = _Inlining(schema.get("$defs", {})).schema(schema, ())
    assert isinstance(inlined, dict)
    return inlined


def holds_itself(name: str) -> ValueError:
    """The error that refuses a type for holding itself, at whatever depth."""
    return ValueError(
        f"{name} holds itself, and a schema without references cannot say that: take what it holds "
        "as lists, or as text."
    )


class _Inlining:
    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self._definitions = definitions

    def schema(self, value: Any, within: tuple[str, ...]) -> Any:
        """The schema, or a list of them, which stands within these definitions."""
        if isinstance(value, list):
            return [self.schema(one, within) for one in value]
        if not isinstance(value, Mapping):
            return value
        if (reference := value.get("$ref", "")).startswith(_PREFIX):
            name = reference.removeprefix(_PREFIX)
            if name in within:
                raise holds_itself(name)
            defined = self.schema(self._definitions[name], (*within, name))
            defined.pop("title", None)
            beside = {key: held for key, held in value.items() if key != "$ref"}
            return {**defined, **self.schema(beside, within)}
        inlined = {}
        for key, held in value.items():
            if key in _MAPPINGS:
                inlined[key] = {name: self.schema(one, within) for name, one in held.items()}
            elif key not in _FOR_REFERENCES:
                inlined[key] = held if key in _VALUES else self.schema(held, within)
        return inlined
