"""The JSON schema of a tool's arguments, and the validation of tool calls."""

import inspect
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NotRequired, Required

from griffe import Docstring, DocstringSectionKind, DocstringStyle
from pydantic import ConfigDict, Field, JsonValue, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind
from pydantic_core import to_jsonable_python
from typing_extensions import TypedDict

from agentfly_core.authoring.injection import AuthorFunction, name, unbound
from agentfly_core.config.import_path import nullable
from agentfly_core.config.mismatch import message_of, place
from agentfly_core.system.formats.json_value import JSON
from agentfly_core.system.formats.text import did_you_mean, sentence

_STYLES: Mapping[DocstringStyle, re.Pattern[str]] = {
    "numpy": re.compile(r"^(Other )?(Parameters|Returns|Raises|Yields)\n-{3,}$", re.MULTILINE),
    "sphinx": re.compile(r"^:(param|type|returns?|rtype|raises?)\b.*:", re.MULTILINE),
}
"""Patterns that match docstrings in NumPy or Sphinx style, but not in Google style."""
_LISTS = (DocstringSectionKind.parameters, DocstringSectionKind.other_parameters)
# models often write numbers where text is expected
_LENIENT = ConfigDict(extra="forbid", coerce_numbers_to_str=True, allow_inf_nan=False)
_PREFIX = "#/$defs/"
_MAPPINGS = ("properties", "patternProperties")
_VALUES = ("default", "const", "enum", "examples")
_FOR_REFERENCES = ("$defs", "discriminator")


@dataclass(frozen=True, slots=True)
class Documentation:
    """The contents of a docstring.

    Example: `Documentation("Find a product by key.", {"key": "the product's key"})`.
    """

    summary: str
    parameters: Mapping[str, str]


class BadArguments(ValueError):
    """The arguments of a call do not fit the tool's schema. The model reads the message."""


class Arguments:
    """Validates the arguments that a model passes to a tool.

    `schema` is a JSON schema of an object, without references. The constructor raises ValueError if
    a parameter has a type without a JSON schema.
    """

    def __init__(
        self, function: AuthorFunction, parameters: Mapping[str, inspect.Parameter]
    ) -> None:
        described = documentation(function).parameters
        try:
            self._check = TypeAdapter[dict[str, Any]](_shape(parameters, described))
            self.schema = without_references(self._check.json_schema(schema_generator=_Untitled))
            # titles only repeat the names, and would cost tokens in each prompt
            self.schema.pop("title", None)
        except Exception as error:  # pydantic raises many kinds of errors for odd annotations
            raise ValueError(
                f"A parameter of {name(function)} has a type without a JSON schema: {error}"
            ) from None

    def read(self, sent: Mapping[str, JSON]) -> dict[str, Any]:
        """Validate the arguments of a call, and convert them to Python types.

        Missing arguments get copies of their defaults. Raises BadArguments if the arguments are
        invalid. The message lists all mistakes.
        """
        try:
            return self._check.validate_python(dict(sent))
        except ValidationError as error:
            faults = []
            for fault in error.errors(include_url=False):
                where = place(fault["loc"])
                if fault["type"] == "extra_forbidden" and len(fault["loc"]) == 1:
                    hint = did_you_mean(where, list(self.schema["properties"]))
                    faults.append(f"there is no argument {where!r}.{hint}")
                else:
                    faults.append(f"{where}: {message_of(fault)}")
            raise BadArguments(
                f"{sentence('; '.join(faults))} Expected arguments: {json.dumps(self.schema)}"
            ) from None


def documentation(function: AuthorFunction) -> Documentation:
    """Parse the docstring of a function, or of the class of a callable object.

    The docstring may have Google, NumPy or Sphinx style.
    """
    function = unbound(function)
    sources = (
        (function,) if hasattr(function, "__name__") else (type(function).__call__, type(function))
    )
    text = next((inspect.getdoc(source) for source in sources if source.__doc__), None) or ""
    style: DocstringStyle = next(
        (name for name, mark in _STYLES.items() if mark.search(text)), "google"
    )
    sections = Docstring(text).parse(style, warnings=False)
    texts = [str(s.value) for s in sections if s.kind is DocstringSectionKind.text]
    listed = [p for s in sections if s.kind in _LISTS for p in s.value]
    return Documentation(
        "\n\n".join(texts), {p.name: " ".join(p.description.split()) for p in listed}
    )


def _shape(parameters: Mapping[str, inspect.Parameter], described: Mapping[str, str]) -> Any:
    """Make a TypedDict with the types and defaults of the parameters.

    `described` contains the descriptions of parameters, by the parameter's name.
    """
    fields = {}
    for key, parameter in parameters.items():
        metadata: dict[str, Any] = {"description": described[key]} if key in described else {}
        kind, default = parameter.annotation, parameter.default
        if default is inspect.Parameter.empty:
            fields[key] = Required[Annotated[kind, Field(**metadata)]]
            continue
        field = default if isinstance(default, FieldInfo) else _optional(default)
        if field.default is None:
            kind = nullable(kind)
        needed = Required if field.is_required() else NotRequired
        fields[key] = needed[Annotated[kind, Field(**metadata), field]]

    shape = TypedDict("Arguments", fields)  # type: ignore[misc]
    shape.__pydantic_config__ = _LENIENT  # type: ignore[attr-defined]
    return shape


def _optional(default: object) -> Any:
    """Make a pydantic field with a default value.

    A default without a JSON form, such as NaN, is written into the schema as text.
    """
    shown: JsonValue
    try:
        shown = to_jsonable_python(default, fallback=str)
        json.dumps(shown, allow_nan=False)
    except ValueError:  # NaN, or bytes that are not UTF-8
        shown = str(default)
    return Field(default=default, json_schema_extra={"default": shown})


class _Untitled(GenerateJsonSchema):
    ignored_warning_kinds: set[JsonSchemaWarningKind] = {  # noqa: RUF012  # as pydantic declares it
        "skipped-choice",
        "non-serializable-default",
    }

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def without_references(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Replace each reference in a JSON schema by the definition to which it refers.

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
    """Make the error for a type that contains itself."""
    return ValueError(
        f"{name} contains itself, which a schema without references cannot express: use lists or "
        "text instead."
    )
