"""Types with a `typing.TypedDict`, which pydantic does not read before Python 3.12."""

from __future__ import annotations

import functools
import operator
from types import GenericAlias, UnionType
from typing import Annotated, Any, NotRequired, Required, get_args, get_origin, get_type_hints

from typing_extensions import TypedDict, is_typeddict

from agentfly_core.formats.json_schema import holds_itself


def known_to_pydantic(kind: Any, within: tuple[Any, ...] = ()) -> Any:
    """The type with each `typing.TypedDict` in it as one of typing_extensions.

    Raises ValueError for one that holds itself, or one of those that it stands `within`.
    """
    if is_typeddict(kind) and type(kind).__module__ == "typing":
        if kind in within:
            raise holds_itself(kind.__name__)
        fields = {}
        for key, held in get_type_hints(kind, include_extras=True).items():
            while get_origin(held) in (Required, NotRequired):
                (held,) = get_args(held)
            needed = Required if key in kind.__required_keys__ else NotRequired
            fields[key] = needed[known_to_pydantic(held, (*within, kind))]
        made = TypedDict(kind.__name__, fields)  # type: ignore[misc]
        made.__doc__ = kind.__doc__
        return made
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return Annotated[known_to_pydantic(arguments[0], within), *arguments[1:]]
    rebuilt = tuple(known_to_pydantic(argument, within) for argument in arguments)
    if rebuilt == arguments:
        return kind
    if isinstance(kind, UnionType):
        return functools.reduce(operator.or_, rebuilt)
    if isinstance(kind, GenericAlias):
        return GenericAlias(origin, rebuilt)
    return kind.copy_with(rebuilt)
