"""The decorator `@generated` for dataset functions that generate problems from a seed."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

B = TypeVar("B", bound=Callable[..., Mapping[str, Sequence[Any]]])


def generated(function: B) -> B:
    """Mark a dataset function that generates problems from its seed.

    Nightly training can call a marked function with another seed, to check on new problems whether
    a new policy is really better than the old policy. Problems that were already used are
    recognized by their ids. Equal problems of different seeds must therefore have the same id.
    """
    setattr(function, "generated", True)  # noqa: B010
    return function


def is_generated(function: Callable[..., Any]) -> bool:
    """Whether a dataset function is decorated with `@generated`."""
    return getattr(function, "generated", False) is True
