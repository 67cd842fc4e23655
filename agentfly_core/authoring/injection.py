"""Dependency injection by annotation: which parameters we fill in, and which the caller passes."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from agentfly_core.authoring.environment import Environment, in_order
from agentfly_core.records.trajectory import Group, Problem, Trajectory

Lent = Environment | Problem | Trajectory | Group
NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


AuthorFunction = Callable[..., Any]
"""What an author wrote: a function, a method or an object with `__call__`.

Its types are known to the author alone: its parameters are read with `inspect`, its result is
checked.
"""


@dataclass(frozen=True, slots=True)
class Signature:
    """What a function takes.

    `async def lookup(key: str, *, shop: Shop)` has
    `Signature({"shop": Shop}, {"key": <Parameter "key: str">})`.
    """

    lent: Mapping[str, type[Lent]]
    asked: Mapping[str, inspect.Parameter]

    @property
    def environments(self) -> dict[str, type[Environment]]:
        """The environments among what is lent, by parameter."""
        return {name: kind for name, kind in self.lent.items() if issubclass(kind, Environment)}


class Asking(Protocol):
    """What asks for something to be lent to it: a tool or a reward."""

    @property
    def signature(self) -> Signature:
        """What it takes."""


def kinds_needed(parts: Iterable[Asking]) -> tuple[type[Environment], ...]:
    """The kinds of environment that tools and rewards ask for, in the order of leasing."""
    return in_order({kind for part in parts for kind in part.signature.environments.values()})


def read(function: AuthorFunction) -> Signature:
    """The signature of a function, method or object with `__call__`, its annotations evaluated.

    Keyword arguments of a `functools.partial` are bound and left out. Raises ValueError for an
    annotation that cannot be evaluated, is missing, or for `*args`, `**kwargs` and positional-only
    parameters.
    """
    try:
        parameters = inspect.signature(function, eval_str=True).parameters
    except Exception as error:  # an annotation in quotes is an author's code
        raise ValueError(
            f"An annotation of {name(function)} cannot be evaluated: {type(error).__name__}: "
            f"{error}. Define or import that type at the top of the module, outside `if "
            "TYPE_CHECKING`."
        ) from None
    lent: dict[str, type[Lent]] = {}
    asked: dict[str, inspect.Parameter] = {}
    bound = function.keywords if isinstance(function, functools.partial) else {}
    for key, parameter in parameters.items():
        if key in bound:
            continue
        kind = parameter.annotation
        if parameter.kind not in NAMED:
            raise ValueError(
                f"{name(function)} takes {parameter}; give every parameter a name and a type "
                "instead."
            )
        if kind is inspect.Parameter.empty:
            raise ValueError(
                f"The parameter {key!r} of {name(function)} has no annotation; write its type: "
                f"`{key}: str` in a tool. A reward takes `trajectory: Trajectory` and `problem: "
                "Problem`, and scores one episode. (A method is made a tool or reward on its "
                "instance: `tool(notes.write)`.)"
            )
        if isinstance(kind, type) and issubclass(kind, (Environment, Problem, Trajectory, Group)):
            lent[key] = kind
        else:
            asked[key] = parameter
    return Signature(lent, asked)


def name(function: AuthorFunction) -> str:
    """The name of a function; a class, and an object with `__call__`, is called like the class, in
    lower case. A `functools.partial` has the name of its function.
    """
    function = unbound(function)
    if isinstance(function, type):
        return function.__name__.lower()
    own: str | None = getattr(function, "__name__", None)
    return own or type(function).__name__.lower()


def unbound(function: AuthorFunction) -> AuthorFunction:
    """The function of a `functools.partial`; any other function itself."""
    return function.func if isinstance(function, functools.partial) else function


def refuse_iterators(function: AuthorFunction, what: str) -> None:
    """Raise ValueError for a function whose calls return no result: a generator function, plain or
    asynchronous, and a cached coroutine function, whose coroutine can be awaited only once.

    `what` names it in the message: "The tool 'search'". The functions of partials, objects with
    `__call__` and classes of such objects are checked likewise.
    """
    body = unbound(function)
    cached = hasattr(body, "cache_info")
    body = getattr(body, "__wrapped__" if cached else "__func__", body)
    for code in (body, getattr(body, "__call__", None)):  # noqa: B004
        if inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code):
            raise ValueError(
                f"{what} is a generator function: it contains `yield`, so a call returns an "
                "iterator. Collect the items in a list and return them with `return`."
            )
        if cached and inspect.iscoroutinefunction(code):
            raise ValueError(
                f"{what} is a cached `async def`: its coroutine can be awaited only once, so the "
                "second call fails. Cache the values inside of the function."
            )
