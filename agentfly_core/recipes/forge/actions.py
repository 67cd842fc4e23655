"""Actions by which a language model, the speaker `optimizer`, changes a set of functions."""

import json
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from agentfly_core import ToolError
from agentfly_core.recipes.forge.function_sets import Function, Functions, call

TERMINATE = "TERMINATE"


class _Action(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Add(_Action):
    """`{"action": "add", "function": {...}}`."""

    action: Literal["add"]
    function: Function


class Revise(_Action):
    """`{"action": "revise", "function": {...}}`.

    It replaces the function that has the same name.
    """

    action: Literal["revise"]
    function: Function


class Remove(_Action):
    """`{"action": "remove", "name": "double"}`."""

    action: Literal["remove"]
    name: str


FunctionAction = Annotated[Add | Revise | Remove, Field(discriminator="action")]
ACTION: TypeAdapter[FunctionAction] = TypeAdapter(FunctionAction)
SCHEMA = json.dumps(ACTION.json_schema())


def parsed(text: str) -> FunctionAction:
    """Parse the JSON object of an action, and ignore the text around the object.

    Raises ValueError for a text without an object, and for an object that is not an action.
    """
    begin, end = text.find("{"), text.rfind("}")
    return ACTION.validate_json(text[begin : end + 1])


async def applied(action: FunctionAction, before: Functions) -> Functions:
    """Apply an action to a set of functions, and return the new set.

    Raises ValueError if an action `Add` has the name of an existing function, or an action `Revise`
    or `Remove` has the name of a missing function. Also raises ValueError if the new code fails, or
    does not define the function.
    """
    name = action.name if isinstance(action, Remove) else action.function.name
    exists = any(one.name == name for one in before)
    if exists == isinstance(action, Add):
        raise ValueError(f"There is {'already a' if exists else 'no'} function {name}.")
    others = tuple(one for one in before if one.name != name)
    if isinstance(action, Remove):
        return others
    try:
        await call(action.function, None)
    except ToolError as error:
        raise ValueError(str(error)) from None
    return (*others, action.function)
