"""The mark `@generated` for functions that make datasets."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

B = TypeVar("B", bound=Callable[..., Mapping[str, Sequence[Any]]])


def generated(function: B) -> B:
    """Mark a dataset function that generates problems from its seed.

    If the function generates the same problem for two seeds, the ids must be the same, too. Nightly
    training can then generate new problems, to check again whether a new policy is better than the
    old policy.
    """
    setattr(function, "generated", True)  # noqa: B010
    return function


def is_generated(function: Callable[..., Any]) -> bool:
    """Whether a dataset function is decorated with `@generated`."""
    return getattr(function, "generated", False) is True
