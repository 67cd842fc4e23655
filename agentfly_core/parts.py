"""Things named in an experiment file by their import path: no registry, no import for its side effect."""

from __future__ import annotations

import difflib
import importlib
import inspect
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter


def load(path: str) -> Any:
    """What an import path names (`package.module:name`); the working directory is importable."""
    module, _, name = path.partition(":")
    if not name:
        raise ValueError(f"Got {path!r}, expected an import path like 'package.module:name'.")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        raise ValueError(f"Cannot import {module!r} of {path!r}: {error}. Is it installed, or below {here}?") from error
    except AttributeError:
        names = [n for n in vars(importlib.import_module(module)) if not n.startswith("_")]
        raise ValueError(f"{module!r} has no {name!r}.{did_you_mean(name, names)}") from None


def construct(maker: Any, settings: Mapping[str, Any]) -> Any:
    """Call `maker` with settings that are checked against its parameters' names and types.

    A dataclass's own fields are its settings; raises ValueError for an unknown or ill-typed one.
    """
    refuse_unknown(maker, settings)
    if hasattr(maker, "__dataclass_fields__"):
        return TypeAdapter(maker).validate_python(dict(settings))
    return maker(**settings)


def refuse_unknown(maker: Any, settings: Mapping[str, Any]) -> None:
    """Raise ValueError for a setting that is none of `maker`'s parameters."""
    known = list(inspect.signature(maker).parameters)
    for key in settings:
        if key not in known:
            raise ValueError(f"{maker.__name__} has no setting {key!r}.{did_you_mean(key, known)}")


def defaults(maker: Any) -> dict[str, Any]:
    """The settings of `maker` that may be left out, with their values: `{"clip_low": 0.2, "kl_weight": 0.0}`."""
    parameters = inspect.signature(maker).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """A hint for a mistyped name, or the list of all names when none is near."""
    near = difflib.get_close_matches(word, known, n=1)
    return f" Did you mean {near[0]!r}?" if near else f" Known: {', '.join(known)}."
