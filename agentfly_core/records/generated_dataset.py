"""What the author of a dataset's function says about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

B = TypeVar("B", bound=Callable[..., Mapping[str, Sequence[Any]]])


def generated(function: B) -> B:
    """Mark a dataset's function whose problems are made from its seed.

    Another seed gives other problems, and an id says what its problem asks for, such as
    `add-41-58`, so that a problem has the same id under every seed. A night's policy that seems
    better is then confirmed on fresh problems.
    """
    setattr(function, "generated", True)  # noqa: B010
    return function


def is_generated(function: Callable[..., Any]) -> bool:
    """Whether a dataset's function is marked `@generated`."""
    return getattr(function, "generated", False) is True
