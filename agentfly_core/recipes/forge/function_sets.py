"""Functions that a model has written: store them in files, load them as tools, and call them."""

import inspect
import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from agentfly_core import ToolError, digest, tool
from agentfly_core.sandbox import Limits, run

TYPES = {"integer": int, "number": float, "string": str, "boolean": bool}
LIMITS = Limits(wall=5.0, cpu=4, processes=8)
"""Limits of a function call in the sandbox."""
_ID = r"^[A-Za-z_][A-Za-z0-9_]{0,40}$"
_PROGRAM = """
import json
with open("given.json") as file:
    name, code, arguments = json.load(file)
own = {"__name__": "functions"}
exec(compile(code, f"{name}.py", "exec"), own)
if not callable(own.get(name)):
    raise NameError(f"the code defines no function {name}")
result = own[name](**arguments) if arguments is not None else None
with open("result.json", "w") as file:
    json.dump(result, file, default=str)
"""


class Function(BaseModel):
    """A function that a model has written, with the types of its arguments. As JSON:

    {"name": "double", "description": "Twice a number.", "arguments": {"n": "integer"},
        "code": "def double(n):\\n    return 2 * n"}
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    name: Annotated[str, Field(pattern=_ID)]
    description: Annotated[str, Field(min_length=1, max_length=500)]
    arguments: dict[
        Annotated[str, Field(pattern=_ID)], Literal["integer", "number", "string", "boolean"]
    ]
    code: Annotated[str, Field(max_length=20_000)]


Functions = tuple[Function, ...]
FUNCTIONS: TypeAdapter[Functions] = TypeAdapter(Functions)


def digest_of(made: Functions) -> str:
    """Compute the hash of a set of functions. The function `write` uses it as file name."""
    return digest(FUNCTIONS.dump_python(made, mode="json"))


def write(made: Functions, folder: Path) -> str:
    """Write a set of functions to `folder/DIGEST.json`, and return the digest."""
    folder.mkdir(parents=True, exist_ok=True)
    name = digest_of(made)
    (folder / f"{name}.json").write_bytes(FUNCTIONS.dump_json(made, indent=1))
    return name


def functions(digest: str, folder: str = "functions") -> list[Any]:
    """Load the functions of `folder/DIGEST.json` as tools, for the setting `tools`.

    Raises ValueError if the file is missing, or if its content does not have this digest.
    """
    path = Path(folder, f"{digest}.json")
    if not path.is_file():
        raise ValueError(
            f"There is no file {path.absolute()}. Run the flow `forge`, or copy the file there."
        )
    made = FUNCTIONS.validate_json(path.read_bytes())
    if (own := digest_of(made)) != digest:
        raise ValueError(
            f"{path} was changed: its digest is now {own}. Restore the file, or rename it to "
            f"{own}.json and set `digest` to {own}."
        )
    return tools_of(made)


def tools_of(made: Functions) -> list[Any]:
    """Make a tool for each function; each call runs in a sandbox."""
    return [_tool(one) for one in made]


def _tool(function: Function) -> Any:
    async def called(**arguments: Any) -> str:
        return await call(function, arguments)

    own: Any = called  # gets the signature of the function
    own.__signature__ = inspect.Signature(
        [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=TYPES[kind])
            for name, kind in function.arguments.items()
        ],
        return_annotation=str,
    )
    return tool(name=function.name, description=function.description, timeout=60.0)(own)


async def call(function: Function, arguments: dict[str, Any] | None) -> str:
    """Call a function in a new sandbox. Return a string unchanged, and other results as JSON text.

    If `arguments` is None, the code is run but the function is not called. Raises ToolError with
    the last line of the traceback if the code fails, or does not define the function.
    """
    given = json.dumps([function.name, function.code, arguments])
    done = await run(_PROGRAM, {"given.json": given}, limits=LIMITS, collect=["result.json"])
    if (result := done.files.get("result.json")) is None:
        last = (done.stderr.strip().splitlines() or [""])[-1]
        raise ToolError(f"{function.name} failed ({done.status.value}). {last}".strip())
    value = json.loads(result)
    return value if isinstance(value, str) else json.dumps(value)
