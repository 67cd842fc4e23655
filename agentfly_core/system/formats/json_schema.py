"""JSON schemas without references, which small models cannot follow."""

from collections.abc import Mapping
from typing import Any

_PREFIX = "#/$defs/"
_MAPPINGS = ("properties", "patternProperties")
_VALUES = ("default", "const", "enum", "examples")
_FOR_REFERENCES = ("$defs", "discriminator")


def without_references(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Replace each reference of a JSON schema by its definition.

    `{"$ref": "#/$defs/Box", "description": "the box"}` becomes `{"type": "object", ...,
    "description": "the box"}`. Raises ValueError for a recursive type.
    """
    definitions = schema.get("$defs", {})

    def inlined(value: Any, within: tuple[str, ...]) -> Any:
        if isinstance(value, list):
            return [inlined(one, within) for one in value]
        if not isinstance(value, Mapping):
            return value
        if (reference := value.get("$ref", "")).startswith(_PREFIX):
            name = reference.removeprefix(_PREFIX)
            if name in within:
                raise holds_itself(name)
            defined = inlined(definitions[name], (*within, name))
            defined.pop("title", None)
            beside = {key: held for key, held in value.items() if key != "$ref"}
            return {**defined, **inlined(beside, within)}
        result = {}
        for key, held in value.items():
            if key in _MAPPINGS:
                result[key] = {name: inlined(one, within) for name, one in held.items()}
            elif key not in _FOR_REFERENCES:
                result[key] = held if key in _VALUES else inlined(held, within)
        return result

    return dict(inlined(schema, ()))


def holds_itself(name: str) -> ValueError:
    """The error for a recursive type."""
    return ValueError(
        f"{name} holds itself, and a schema without references cannot say that: take what it holds "
        "as lists, or as text."
    )
