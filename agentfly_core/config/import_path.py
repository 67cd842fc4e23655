"""Load functions and classes by import path, and check their settings."""

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import is_dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Optional, TypeVar, get_args, get_origin, get_type_hints

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo

from agentfly_core.config.mismatch import place, with_value
from agentfly_core.system.formats.json_value import JSON
from agentfly_core.system.formats.text import did_you_mean, fault, nearest, sentence
from agentfly_core.system.formats.tracebacks import own_line
from agentfly_core.system.module_search import OURS, importable_here

R = TypeVar("R")
Maker = Callable[..., Any]
Parameters = Mapping[str, inspect.Parameter]
ALGORITHMS = "agentfly_core.algorithms"
OPEN_ENDED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@contextmanager
def at(key: str) -> Iterator[None]:
    """Put a settings key before the message of each ValueError that the `with` block raises."""
    try:
        yield
    except ValueError as error:
        # without the cause, because the message already has its text
        raise ValueError(f"{key}: {error}") from error.__cause__


def load(path: str) -> Any:
    """Import a function or a class by its import path, such as `package.module:name`.

    Modules in the working directory can be imported, too. Raises ValueError if the path cannot be
    imported, or if it names neither a function nor a class.
    """
    module, _, name = path.partition(":")
    if not name:
        raise ValueError(f"Got {path!r}, expected an import path like 'package.module:name'.")
    importable_here()
    try:
        imported = importlib.import_module(module)
    except (Exception, SystemExit) as error:  # an author's module may raise any error
        line = own_line(error)
        message = sentence(fault(error) + (f" (at {line})" if line else ""))
        if isinstance(error, ModuleNotFoundError):
            message += _where_to_look(str(error.name))
        raise ValueError(
            f"The module {module!r} of {path!r} cannot be imported: {message}"
        ) from error
    if not hasattr(imported, name):
        names = [n for n in vars(imported) if not n.startswith("_")]
        file = getattr(imported, "__file__", "built-in")
        raise ValueError(f"{module!r} ({file}) has no {name!r}.{did_you_mean(name, names)}")
    if not callable(target := getattr(imported, name)):
        raise ValueError(f"{path} is a {type(target).__name__}, expected a function or a class.")
    return target


def _where_to_look(missing: str) -> str:
    """Return a hint for a missing module: a similar name, or the folder in which to run the
    command.
    """
    package, _, name = missing.rpartition(".")
    folders = getattr(sys.modules.get(package), "__path__", ())
    if hint := nearest(name, [module.name for module in pkgutil.iter_modules(folders)]):
        return hint
    hint = f" Run the command in the folder of your project; the current folder is {Path.cwd()}."
    if (top := missing.partition(".")[0]) in OURS:
        hint += f" AgentFly itself has a package {top!r}: rename your folder {top!r}."
    return hint


def algorithm_path(short: str) -> str:
    """Return the import path of an algorithm for its short name, such as "grpo".

    An import path is returned unchanged. Raises ValueError if the name is unknown.
    """
    if ":" in short:
        return short
    paths: Mapping[str, str] = importlib.import_module(ALGORITHMS).NAMES
    if short not in paths:
        raise ValueError(
            f"Got {short!r}, expected an import path or a name in "
            f"{ALGORITHMS}.{did_you_mean(short, sorted(paths))}"
        )
    return paths[short]


def construct(
    maker: Callable[..., R], settings: Mapping[str, JSON], given: Mapping[str, Any] = {}
) -> R:
    """Call `maker` with settings and with the arguments in `given`, and return the result.

    Raises ValueError if the settings do not fit the parameters of `maker`.
    """
    return maker(**{**given, **check_settings(maker, settings, list(given))})


def check_settings(
    maker: Maker, settings: Mapping[str, JSON], given: Sequence[str] = ()
) -> dict[str, Any]:
    """Convert settings to the annotated types of the parameters of `maker`.

    `given` has the names of parameters that will be passed in addition to the settings. `maker`
    must have these parameters. Raises ValueError if a setting is not a parameter, if a value has a
    wrong type, or if a parameter without a default is neither in `settings` nor in `given`.
    """
    name, parameters = _called(maker), parameters_of(maker)
    for key in given:
        if key not in parameters:
            raise ValueError(
                f"{name} has no parameter {key!r}. It must have the parameters {', '.join(given)}."
            )
    for key in settings:
        if key not in parameters:
            raise ValueError(f"{name} has no setting {key!r}.{did_you_mean(key, list(parameters))}")
    unset = [p for p in parameters.values() if p.default is p.empty and p.kind not in OPEN_ENDED]
    if missing := [str(p) for p in unset if p.name not in (*given, *settings)]:
        raise ValueError(
            f"{name} has no default for {', '.join(missing)}: set a value next to `use`."
        )
    types = types_of(maker, settings.keys())
    return {key: typed(f"{name}: {key}", value, types[key]) for key, value in settings.items()}


def parameters_of(maker: Maker) -> Parameters:
    """Return the parameters of a function or class. Raises ValueError for any other object."""
    try:
        parameters = inspect.signature(maker).parameters
    except ValueError:
        raise ValueError(f"Got a {_called(maker)}, expected a function or a class.") from None
    for key, parameter in parameters.items():
        if isinstance(parameter.default, FieldInfo):
            raise ValueError(
                f"{_called(maker)}: the default of {key!r} is a pydantic Field. Write `{key}: "
                "Annotated[TYPE, Field(...)] = DEFAULT`."
            )
    return parameters


def types_of(maker: Maker, names: Collection[str]) -> dict[str, Any]:
    """Return the types of some parameters of `maker`. `names` has the names of these parameters.

    A parameter with the default None also allows null. Raises ValueError if an annotation cannot be
    evaluated. For a dataclass, the annotations of all fields are evaluated. For any other `maker`,
    annotations of parameters outside `names` are ignored, because their types may be imported only
    for type checking.
    """
    parameters = {key: p for key, p in parameters_of(maker).items() if key in names}
    annotations = {
        key: Any if p.annotation is p.empty else p.annotation for key, p in parameters.items()
    }
    called = getattr(maker, "__init__") if isinstance(maker, type) else maker  # noqa: B009
    # annotations are evaluated in the module that defines the function
    namespace = getattr(inspect.unwrap(called), "__globals__", {})
    try:
        types = (
            get_type_hints(maker, include_extras=True)
            if is_dataclass(maker)
            else get_type_hints(
                SimpleNamespace(__annotations__=annotations), namespace, include_extras=True
            )
        )
    except NameError as error:
        raise ValueError(
            f"An annotation of {_called(maker)} cannot be evaluated: {error}. Import its types at "
            "the top of the module, outside `if TYPE_CHECKING`."
        ) from None
    return {
        key: nullable(types[key]) if p.default is None else types[key]
        for key, p in parameters.items()
    }


def nullable(kind: Any) -> Any:
    """Return a type that also allows None.

    This corrects annotations such as `n: int = None`, which exclude their own default.
    """
    if get_origin(kind) is Annotated:
        inner, *metadata = get_args(kind)
        return Annotated[Optional[inner], *metadata]  # noqa: UP045
    return Optional[kind]  # noqa: UP045


def typed(where: str, value: JSON, kind: type[R]) -> R:
    """Convert the value of a setting to the annotated type `kind`.

    Raises ValueError if this is not possible. The message begins with `where`, the setting's key.
    """
    try:
        return TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(filter(None, (where, place(first["loc"]))))
        raise ValueError(f"{key}: {with_value(first)}") from None
    except PydanticUserError:
        raise ValueError(
            f"{where} has the annotation {kind!r}, which a setting cannot have (value: {value!r}); "
            "use an annotation such as int, str or a dataclass"
        ) from None


def _called(maker: Maker) -> str:
    return str(getattr(maker, "__name__", type(maker).__name__))


def with_defaults(
    maker: Maker, settings: Mapping[str, JSON], given: Sequence[str] = ()
) -> dict[str, JSON]:
    """Return settings of `maker` with all default values added, including defaults in subsections.

    With `with_defaults(GRPO, {"policy_loss": "gspo"})`, `policy_loss` becomes `{"use": "gspo",
    "low": 3e-4, "high": 4e-4}`. Raises the same errors as `check_settings`.
    """
    defaults = {
        p.name: p.default for p in parameters_of(maker).values() if p.default is not p.empty
    }
    complete = {**defaults, **check_settings(maker, settings, given)}
    sections = {key: value for key, value in complete.items() if isinstance(value, BaseModel)}
    dumped = {key: section.model_dump(mode="json") for key, section in sections.items()}
    return {**defaults, **settings, **dumped}
