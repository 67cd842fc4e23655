"""What is wrong with a value, in the words of YAML and JSON rather than of Python."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pydantic_core import ErrorDetails

UNSHOWN = "unshown"  # the type of a fault whose value may be a secret
LIST, MAPPING = "Input should be a list", "Input should be a mapping of keys to values"
MESSAGES = {
    **dict.fromkeys(("tuple_type", "list_type", "set_type", "frozen_set_type"), LIST),
    **dict.fromkeys(
        ("dict_type", "mapping_type", "model_type", "model_attributes_type", "dataclass_type"),
        MAPPING,
    ),
}
_OPTION = re.compile(r"[a-z-]+\[.*\]", re.DOTALL)


def message_of(fault: ErrorDetails) -> str:
    """The message of one of pydantic's faults: "Input should be a list", not "a valid tuple"."""
    message = MESSAGES.get(fault["type"], str(fault["msg"])).removeprefix("Value error, ")
    return re.sub(
        r"^(Tuple|Set|Frozenset|Dictionary) should have", "Input should have", message
    ).replace(" after validation", "")


def place(steps: Iterable[int | str]) -> str:
    """Where it is, `adapter.targets`, without the name that pydantic gives to one of several
    allowed types.
    """
    return ".".join(str(step) for step in steps if not _OPTION.fullmatch(str(step)))
