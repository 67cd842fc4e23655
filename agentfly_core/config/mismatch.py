"""Error messages about wrong settings, and suggestions for names from TRL or verl."""

import re
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic_core import ErrorDetails

UNSHOWN = "unshown"  # the type of a fault whose value may be a secret
SYNONYMS: dict[str, str] = {}
for names in tomllib.loads(Path(__file__).with_name("synonyms.toml").read_text()).values():
    SYNONYMS |= names
"""AgentFly's setting for each name of TRL or verl."""
_OPTION = re.compile(r"[a-z-]+\[.*\]", re.DOTALL)


def message_of(fault: ErrorDetails) -> str:
    """Return the message of one of pydantic's faults: "Input should be a valid integer"."""
    return str(fault["msg"]).removeprefix("Value error, ")


def with_value(fault: ErrorDetails) -> str:
    """The message with the wrong value: "Input should be a valid integer (got 'x')"."""
    message, value = message_of(fault), fault.get("input")
    if value is None and fault["type"] != "invalid_key":
        return "got null, expected a value; only optional settings accept null"
    return message if repr(value) in message else f"{message} (got {value!r})"


def place(steps: Iterable[int | str]) -> str:
    """Return the dotted key, such as `adapter.targets`, without pydantic's names of union
    members.
    """
    return ".".join(str(step) for step in steps if not _OPTION.fullmatch(str(step)))


def settings_like(key: str, settings: Sequence[str]) -> list[str]:
    """Return similar settings: `["update.learning_rate"]` for `learning_rate`,
    `--update.learning-rate` or verl's `actor_rollout_ref.actor.optim.lr`, or an empty list.
    """
    key = key.lstrip("-").replace("-", "_")
    # keys of verl have other sections, but often the same last part
    last = key.rpartition(".")[2]
    if key in settings:
        return [key]
    same = [name for name in settings if name.rpartition(".")[2] == last]
    synonyms = [SYNONYMS[last]] if last in SYNONYMS else []
    return sorted(same, key=lambda name: name.count(".")) + synonyms
