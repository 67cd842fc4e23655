"""Dependency injection by annotation. It separates injected parameters from arguments that a caller
passes.
"""

import functools
import inspect
import types
import typing
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from agentfly_core.authoring.environment import Environment
from agentfly_core.records.trajectory import Group, Problem, Score, Team, Trajectory

Lent = Environment | Problem | Trajectory | Team | Group
NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
UNDECIDED = (Annotated, Any, object, inspect.Signature.empty, types.UnionType)
"""Annotations, such as Any, that do not show whether a function returns a score."""

AuthorFunction = Callable[..., Any]
"""Code of an author: a function, a method or an object with `__call__`.

Its types are unknown, so its parameters are read with `inspect`, and its result is checked.
"""


@dataclass(frozen=True, slots=True)
class Signature:
    """The parameters of a function.

    The pipeline injects the parameters in `lent`, by their type. The caller passes the parameters
    in `arguments`.

    For example, `async def lookup(key: str, *, shop: Shop)` has the signature `Signature({"shop":
    Shop}, {"key": <Parameter "key: str">})`.
    """

    lent: Mapping[str, type[Lent]]
    arguments: Mapping[str, inspect.Parameter]

    @property
    def environments(self) -> dict[str, type[Environment]]:
        """The injected parameters that are environments: maps the parameter's name to the class."""
        return {name: kind for name, kind in self.lent.items() if issubclass(kind, Environment)}


def read(function: AuthorFunction) -> Signature:
    """Read the signature of a function, a method or an object with `__call__`.

    Annotations in quotes are evaluated. Keyword arguments that a `functools.partial` binds are left
    out. Raises ValueError if an annotation is missing or cannot be evaluated, and for `*args`,
    `**kwargs` and positional-only parameters.
    """
    try:
        parameters = inspect.signature(function, eval_str=True).parameters
    except Exception as error:  # an author's annotation in quotes may raise any error
        raise ValueError(
            f"An annotation of {name(function)} cannot be evaluated: {type(error).__name__}: "
            f"{error}. Define or import the annotated type at the top of the module, outside "
            "`if TYPE_CHECKING`."
        ) from None
    lent: dict[str, type[Lent]] = {}
    arguments: dict[str, inspect.Parameter] = {}
    bound = function.keywords if isinstance(function, functools.partial) else {}
    for key, parameter in parameters.items():
        if key in bound:
            continue
        kind = parameter.annotation
        if parameter.kind not in NAMED:
            raise ValueError(
                f"{name(function)} has the parameter {parameter}; replace it by parameters with a "
                "name and a type."
            )
        if kind is inspect.Parameter.empty:
            raise ValueError(
                f"The parameter {key!r} of {name(function)} has no annotation; write its type: "
                f"`{key}: str` in a tool. A reward takes `trajectory: Trajectory` and `problem: "
                "Problem`, and scores one episode. (To use a method, pass the bound method: "
                "`tool(notes.write)`.)"
            )
        if isinstance(kind, type) and issubclass(kind, Lent):
            lent[key] = kind
        else:
            arguments[key] = parameter
    return Signature(lent, arguments)


def name(function: AuthorFunction) -> str:
    """Return the name of a function, or of the function in a `functools.partial`.

    For a class, and for an object without a name, return the class name in lower case.
    """
    function = unbound(function)
    if isinstance(function, type):
        return function.__name__.lower()
    own: str | None = getattr(function, "__name__", None)
    return own or type(function).__name__.lower()


def unbound(function: AuthorFunction) -> AuthorFunction:
    """Return the function of a `functools.partial`, and any other function unchanged."""
    return function.func if isinstance(function, functools.partial) else function


def refuse_iterators(function: AuthorFunction, what: str) -> None:
    """Raise ValueError for a generator function, or for an `async def` with `functools.cache`.

    The function in a `functools.partial` and the method `__call__` of a class are checked, too.
    `what` names the function in the message: "The tool 'search'".
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


def refuse_no_score(what: str, function: AuthorFunction, compares: bool) -> None:
    """Raise ValueError if the result of a reward is annotated with a type that is not a score.

    If `compares` is True, the reward scores all episodes of a problem at once, and its result must
    be a list of scores. Annotations such as Any are accepted, because each result is checked later.
    """
    annotation = inspect.signature(function, eval_str=True).return_annotation
    kind = type(None) if annotation is None else typing.get_origin(annotation) or annotation
    if not isinstance(kind, type) or kind in UNDECIDED or issubclass(kind, Awaitable):
        return
    iterates = issubclass(kind, Iterable) and not issubclass(kind, str | bytes | Mapping)
    if not (iterates if compares else issubclass(kind, Score) or hasattr(kind, "__float__")):
        expected = "a list of numbers or Scores" if compares else "a number or a Score"
        written = annotation.__name__ if isinstance(annotation, type) else annotation
        raise ValueError(
            f"{what} is annotated to return {written}, expected {expected}. Change the result and "
            "its annotation, such as `-> float`."
        )
