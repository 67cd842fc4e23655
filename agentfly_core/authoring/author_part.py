"""The base class of tools and rewards, and functions that call authors' code with a time limit."""

import copy
import functools
import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self, TypedDict, TypeGuard, TypeVar

from typing_extensions import TypeIs

from agentfly_core.authoring import process_calls
from agentfly_core.authoring.environment import Environment, in_order
from agentfly_core.authoring.injection import (
    NAMED,
    AuthorFunction,
    Signature,
    read,
    refuse_iterators,
)
from agentfly_core.authoring.time_limits import Overdue, in_thread, on_loop
from agentfly_core.config.import_path import construct, load
from agentfly_core.system.formats.json_value import JSON

E = TypeVar("E", bound=Environment)
R = TypeVar("R")
ReadyCheck = Callable[[], object]


def nothing_needed() -> None:
    """The default of the option `ready`: a check that never fails."""


class PartOptions(TypedDict, total=False):
    """Options of both `@tool` and `@reward`. Each option is a field of AuthorPart."""

    name: str
    timeout: float
    retries: int
    ready: ReadyCheck
    process: bool


@dataclass(frozen=True, eq=False, kw_only=True)
class AuthorPart(ABC):
    """The base class of Tool and Reward. Calling an instance calls the original function.

    - `made_of`: a function, a method, an object with `__call__`, or a class that defines
      `__call__`. An object of the class is made with `settings` as arguments.
    - `timeout`: the time limit of a call in seconds
    - `retries`: how often a call is repeated after ServiceFailure
    - `ready`: a function that raises an error if this machine lacks a requirement
    - `process`: whether calls run in a separate process, which can be killed
    - `declared`: the tool or reward as its module defines it, without the settings of an experiment
    """

    kind: ClassVar[str]

    made_of: AuthorFunction
    name: str
    timeout: float = 30.0
    retries: int = 0
    ready: ReadyCheck = nothing_needed
    process: bool = False
    settings: Mapping[str, JSON] = field(default_factory=dict)
    declared: Self | None = None

    def __post_init__(self) -> None:
        refuse_iterators(self.made_of, self.what)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    @functools.cached_property
    def function(self) -> AuthorFunction:
        """The function that is called: `made_of` or, if `made_of` is a class, an object of this
        class.

        Raises ValueError if a setting of the class is missing.
        """
        made_of = self.made_of
        return construct(made_of, self.settings) if isinstance(made_of, type) else made_of

    def with_settings(self, **settings: JSON) -> Self:
        """Return a copy of this tool or reward with settings: `Search.with_settings(index="wiki")`.

        The settings are arguments of the decorated class (`made_of`). Raises ValueError if settings
        are wrong or missing, or if a function was decorated instead of a class.
        """
        if not isinstance(self.made_of, type):
            raise ValueError(
                f"{self.what} is a function, so it takes no settings, got {', '.join(settings)}. "
                "Decorate a class instead: its __init__ takes the settings, and its __call__ "
                "replaces the function."
            )
        made = replace(self, settings=settings, declared=self.declared or self)
        _ = made.function
        return made

    @property
    def what(self) -> str:
        """The name of the tool or reward in error messages: "The tool 'search'"."""
        return f"The {self.kind} {self.name!r}"

    @functools.cached_property
    def signature(self) -> Signature:
        """The injected parameters, and the parameters that the caller passes.

        Raises ValueError if a parameter does not suit a tool or a reward, for example a parameter
        without an annotation. With the option `process`, there are three more causes of ValueError:
        another process cannot import the function, the function needs an environment, or `timeout`
        is infinite.
        """
        signature = read(self.function)
        self.check(signature)
        if not self.process:
            return signature
        module, _, name = self._path.partition(":")
        importable = name.isidentifier() and module != "__main__"
        # the other process imports this path, so the path must lead to this tool or reward
        if not importable or load(self._path) is not (self.declared or self):
            raise ValueError(
                f"{self.what} has process=True, but another process cannot import it as "
                f"{self._path}. Move the decorated `def` or `class` to the top level of a module."
            )
        if kinds := [kind.__name__ for kind in signature.environments.values()]:
            raise ValueError(
                f"{self.what} has process=True, but environments ({', '.join(kinds)}) cannot be "
                "passed to another process. Remove process=True, or remove these environments."
            )
        if self.timeout == math.inf:
            raise ValueError(
                f"{self.what} has process=True and timeout=inf. Set a finite timeout, because "
                "only the timeout ends the process of a call that hangs."
            )
        return signature

    @abstractmethod
    def check(self, signature: Signature) -> None:
        """Raise ValueError if the function's parameters or return type are not supported."""

    async def call(
        self, function: Callable[[], Awaitable[R] | R], lent: Sequence[Environment]
    ) -> R:
        """Call `function` in this process, with the time limit `timeout`, and return its result.

        Raises Overdue after `timeout` seconds. The attribute `spoilt` of the environments in `lent`
        is then set to True, because the function may still use them. Also raises the errors of
        `function`. The function `call` of this module describes the details.
        """
        return await call(function, self.timeout, self.what, lent)

    async def ask_process(self, question: Mapping[str, JSON]) -> JSON:
        """Call the tool or reward in a child process, and return the result as JSON.

        `question` contains the arguments, in the format of the method `answer_apart` of Tool or
        Reward. Raises the errors of `process_calls.ask`.
        """
        part = process_calls.Named(self._path, self.settings)
        return await process_calls.ask(part, question, self.timeout)

    @property
    def _path(self) -> str:
        """The import path under which another process finds the function, such as
        "my_quiz:look_up".
        """
        return f"{self.made_of.__module__}:{getattr(self.made_of, '__qualname__', '')}"


def kinds_needed(parts: Iterable[AuthorPart]) -> tuple[type[Environment], ...]:
    """Return the environment classes that tools and rewards need, sorted by module and name."""
    return in_order({kind for part in parts for kind in part.signature.environments.values()})


async def call(
    function: Callable[[], Awaitable[R] | R],
    seconds: float,
    what: str,
    lent: Sequence[Environment] = (),
) -> R:
    """Call `function()` with a time limit, and return the result.

    Asynchronous functions run on the running event loop. Other functions run in their own thread.
    `what` is the name of the function in errors, such as "The tool 'search'".

    Raises Overdue if the function runs for more than `seconds`. Time in which other calls block the
    event loop is not counted. After Overdue, the function may still be running. Therefore, the
    attribute `spoilt` of the environments that it uses (`lent`) is set to True.

    Other errors of the function are raised. Errors that derive from Exception are unchanged. All
    other errors, such as SystemExit, become RuntimeError.
    """
    try:
        if _is_asynchronous(function):
            return await on_loop(function, seconds, what)
        result = await in_thread(function, seconds, what)
        if not is_awaitable(result):
            return result
        return await on_loop(functools.partial(awaited, result), seconds, what)
    except Overdue:
        for environment in lent:
            environment.spoilt = True
        raise


async def made(kind: type[E], settings: Mapping[str, Any], seconds: float) -> E:
    """Make an environment of the class `kind`. Each environment gets its own copies of mutable
    settings.

    Raises Overdue after `seconds`. Errors of the constructor are raised as in the function `call`.
    """

    # mutable defaults of `__init__`, which instances must not share
    shared = {
        key: parameter.default
        for key, parameter in inspect.signature(kind).parameters.items()
        if parameter.kind in NAMED and isinstance(parameter.default, list | dict | set)
    }

    async def make() -> E:
        return kind(**copy.deepcopy({**shared, **settings}))

    return await on_loop(make, seconds, f"{kind.__name__}()")


def _is_asynchronous(
    function: Callable[[], Awaitable[R] | R],
) -> TypeGuard[Callable[[], Awaitable[R]]]:
    """Whether `function` is declared with `async def`. A call then returns an awaitable.

    `function` may also be a `functools.partial`, or an object with an asynchronous `__call__`.
    """
    wrapped = getattr(function, "func", function)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(wrapped, "__call__", None)  # noqa: B004
    )


def is_awaitable(result: Awaitable[R] | R) -> TypeIs[Awaitable[R]]:
    """Whether a result must be awaited."""
    return inspect.isawaitable(result)


async def awaited(result: Awaitable[R]) -> R:
    """Wrap any awaitable in a coroutine, because event loops accept only coroutines as tasks."""
    return await result
