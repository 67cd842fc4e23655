"""Tools: decorated functions that a model can call."""

from __future__ import annotations

import functools
import inspect
import json
import logging
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Unpack, overload

from pydantic_core import to_jsonable_python

from agentfly_core.authoring import author_part, injection, process_calls
from agentfly_core.authoring.chat_template import ToolSchema
from agentfly_core.authoring.environment import Environment, ServiceFailure
from agentfly_core.authoring.injection import AuthorFunction, Lent, Signature
from agentfly_core.authoring.time_limits import Overdue
from agentfly_core.authoring.tool_schema import Arguments, BadArguments, documentation
from agentfly_core.records.trajectory import (
    USABLE,
    Group,
    Observation,
    Problem,
    Team,
    ToolCall,
    Trajectory,
    is_usable,
)
from agentfly_core.system.formats import tracebacks
from agentfly_core.system.formats.json_value import JSON
from agentfly_core.system.formats.text import clip, did_you_mean, fault, shown, warn_once, words_of

logger = logging.getLogger(__name__)
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""A pattern for tool names that OpenAI's API and compatible models accept."""
ADDRESS = re.compile(r" at 0x[0-9a-f]+")


class ToolError(Exception):
    """Raised by a tool for a wrong call of the model. The model reads the message."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """The result of a tool call with a reward for this step: `StepResult("It opens.",
    reward=0.25)`.

    The model reads only `result`. Raises ValueError if the reward is infinite, NaN or too large.
    """

    result: object
    reward: float

    def __post_init__(self) -> None:
        if not is_usable(self.reward):
            raise ValueError(f"Got {shown(self.reward)} as a step's reward, expected {USABLE}.")


@dataclass(frozen=True, eq=False, kw_only=True)
class Tool(author_part.AuthorPart):
    """A function that a model can call, made by `@tool`.

    The base class AuthorPart describes further fields. The model reads a text result unchanged, and
    any other result as JSON. Results without a text form, such as pictures, raise ServiceFailure.

    - `description`: the tool's description for the model. None means the text of the docstring,
      without sections such as Args.
    - `max_chars`: the length in UTF-8 bytes to which a result is shortened
    - `parallel`: whether several calls of the tool in one reply run concurrently
    - `ends_episode`: whether a successful call ends the episode, with the call's result as the
      answer
    """

    kind: ClassVar[str] = "tool"

    description: str | None = None
    max_chars: int = 4000
    parallel: bool = False
    ends_episode: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not NAME.fullmatch(self.name):
            raise ValueError(
                f"{self.what} has a name that models and services refuse. Set another name with "
                "`@tool(name=...)`: 1 to 64 characters, each from a-z, A-Z, 0-9, _ and -."
            )

    def __get__(self, instance: object | None, owner: type | None = None) -> Tool:
        if instance is None:
            return self
        # like a method, a tool made from a method is bound to its instance
        return replace(self, made_of=self.made_of.__get__(instance, owner))

    @functools.cached_property
    def schema(self) -> ToolSchema:
        """The schema that the model reads.

        Raises ValueError if a parameter has a type without a JSON schema.
        """
        description = self.description
        if description is None:
            description = documentation(self.function).summary
        return ToolSchema(self.name, description, self._arguments.schema)

    def untold(self) -> list[str]:
        """List the mistakes in the descriptions of parameters.

        Example: `["its parameter 'key' has no description: ..."]`.
        """
        faults = [
            f"its parameter {key!r} has no description: describe it in `Args` of the docstring, or "
            f"with `Annotated[..., Field(description=...)]`."
            for key, entry in self._arguments.schema["properties"].items()
            if not entry.get("description")
        ]
        parameters = [*inspect.signature(injection.unbound(self.function)).parameters]
        return faults + [
            f"its docstring describes {key!r}, which is no parameter."
            f"{did_you_mean(key, parameters)}"
            for key in documentation(self.function).parameters
            if key not in parameters
        ]

    async def answer(self, call: ToolCall, lent: Mapping[type[Lent], Lent]) -> Observation:
        """Call the tool, and return the observation that the model reads.

        Wrong calls and errors of the tool become observations with an error. Only ServiceFailure is
        raised.
        """
        if not self.process:
            return await self._answer(call, lent, self.call)
        problem = lent[Problem] if self.signature.lent else None
        assert problem is None or isinstance(problem, Problem)
        try:
            answer = await self.ask_process(asdict(_Question(call, problem)))
            observation: Observation = process_calls.adapter(Observation).validate_python(answer)
            return observation
        except (Overdue, process_calls.Died) as error:
            return self._error(words_of(error))

    async def answer_apart(
        self, question: Mapping[str, JSON], caller: process_calls.Caller
    ) -> Mapping[str, JSON]:
        """Run a tool call in the tool's child process, and return the observation as JSON.

        `question` is the JSON form of `_Question`: the call, and the problem or None. The
        tool's function is called through `caller`.
        """
        request = process_calls.adapter(_Question).validate_python(question)
        lent: dict[type[Lent], Lent] = {Problem: request.problem} if request.problem else {}
        return asdict(await self._answer(request.call, lent, caller))

    async def _answer(
        self, call: ToolCall, lent: Mapping[type[Lent], Lent], caller: process_calls.Caller
    ) -> Observation:
        borrowed = {name: lent[kind] for name, kind in self.signature.lent.items()}
        used = [thing for thing in borrowed.values() if isinstance(thing, Environment)]
        try:
            bound = functools.partial(
                self.function, **borrowed, **self._arguments.read(call.arguments)
            )
            for _ in range(self.retries):
                with suppress(ServiceFailure):
                    result = await caller(bound, used)
                    break
            else:
                result = await caller(bound, used)
            reward = float(result.reward) if isinstance(result, StepResult) else None
            read = result.result if isinstance(result, StepResult) else result
            text = clip(self._text_of(read), self.max_chars)
            return Observation(self.name, text, reward=reward)
        except ServiceFailure:
            raise
        except (ToolError, Overdue, BadArguments) as error:
            return self._error(words_of(error) or fault(error))
        # the episode continues: otherwise a policy could crash tools to avoid a bad reward
        except (Exception, SystemExit) as error:
            self._tell(error, lent)
            return self._error(fault(error))

    def _tell(self, error: BaseException, lent: Mapping[type[Lent], Lent]) -> None:
        """Log a warning about an error of the tool. Only the first error of each line of code is
        logged.

        If `lent` contains the Problem of the episode, the warning has the problem's id.
        """
        where = tracebacks.own_line(error)
        problem = lent.get(Problem)
        first = f" (first in the problem {problem.id!r})" if isinstance(problem, Problem) else ""
        what = f"{self.what} raised an error" + (f" at {where}" if where else "")
        warn_once(
            logger, what, f"{fault(error)}{first}; the model reads this error as the tool's result"
        )

    def _text_of(self, result: object) -> str:
        """Convert a result of the tool to text. Raises ServiceFailure for a value without a text
        form.

        If the result is bytes that are not UTF-8, log a warning for the author and raise ToolError.
        """
        if isinstance(result, str):
            return result
        try:
            if isinstance(result, bytes):
                return result.decode()
            # `ensure_ascii` is off, because escapes such as \u00fc cost tokens
            return json.dumps(result, ensure_ascii=False, default=self._plain)
        except UnicodeDecodeError as error:
            warn_once(
                logger,
                f"{self.what} returned bytes that are not UTF-8; the model reads an error. Decode "
                "them in the tool, `data.decode(errors='replace')`, or return text that describes "
                "them.",
            )
            raise ToolError(
                f"The result ({len(error.object)} bytes) is not UTF-8 text: {error.reason} at byte "
                f"{error.start}."
            ) from None

    def _plain(self, value: Any) -> Any:
        """Convert a value to JSON types. Called for values that `json.dumps` cannot encode.

        Raises ServiceFailure for a value without a text form.
        """
        if isinstance(value, Iterator):  # pydantic would read all of its items
            return self._written(value)
        return to_jsonable_python(value, fallback=self._written)

    def _written(self, value: Any) -> Any:
        """Convert an array to a list, and any other object to the text `str(value)`.

        Raises ServiceFailure for a generator, an awaitable, and an object with a memory address in
        its text, such as `<Shop object at 0x7f...>`.
        """
        if hasattr(value, "tolist"):
            return value.tolist()
        text, is_unread = str(value), isinstance(value, Awaitable | Iterator)
        # the default text of an object contains an address, which differs between runs
        if is_unread or ADDRESS.search(text):
            kind = type(value).__name__
            raise ServiceFailure(
                f"{self.what} returned a value without a text form ({kind}): return text or a "
                f"list of values, or define __str__ in the class {kind}."
            )
        return text

    def _error(self, text: str) -> Observation:
        return Observation(self.name, clip(text, self.max_chars), error=True)

    @functools.cached_property
    def _arguments(self) -> Arguments:
        return Arguments(self.function, self.signature.arguments)

    def check(self, signature: Signature) -> None:
        """Raise ValueError if the tool has a parameter of type Trajectory, Team or Group.

        Only rewards get arguments of these types.
        """
        for kind in (Trajectory, Team, Group):
            if kind in signature.lent.values():
                raise ValueError(
                    f"{self.what} has a parameter of the type {kind.__name__}, which only rewards "
                    "get. Remove the parameter."
                )


@dataclass(frozen=True, slots=True)
class _Question:
    call: ToolCall
    problem: Problem | None


class ToolOptions(author_part.PartOptions, total=False):
    """Options of `@tool`. Each option is a field of Tool or AuthorPart, with the same default.

    The default of `name` is the name of the function, or the class name in lower case.
    """

    description: str
    max_chars: int
    parallel: bool
    ends_episode: bool


@overload
def tool(function: AuthorFunction, /) -> Tool: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[AuthorFunction], Tool]: ...
def tool(
    function: AuthorFunction | None = None, /, **options: Unpack[ToolOptions]
) -> Tool | Callable[[AuthorFunction], Tool]:
    """Make a tool from a function, a method, an object with `__call__`, or a class.

    Objects of the class must have a method `__call__`. See Tool for the options. Name, description
    and schema come from the signature and the docstring (Google, NumPy or Sphinx style). Raises
    ValueError for a tool with both `parallel` and `ends_episode`.
    """

    if options.get("parallel") and options.get("ends_episode"):
        raise ValueError(
            "A tool that ends the episode cannot run in parallel with others. Remove `parallel` or "
            "`ends_episode`."
        )

    def make(wrapped: AuthorFunction) -> Tool:
        given: ToolOptions = {"name": injection.name(wrapped), **options}
        return Tool(made_of=wrapped, **given)

    return make if function is None else make(function)
