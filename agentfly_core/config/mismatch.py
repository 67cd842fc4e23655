"""Error messages about wrong settings, and suggestions for names from TRL or verl."""

import re
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic_core import ErrorDetails

UNSHOWN = "unshown"  # the type of an error about a value that may be a secret
SYNONYMS: dict[str, str] = {}
for names in tomllib.loads(Path(__file__).with_name("synonyms.toml").read_text()).values():
    SYNONYMS |= names
"""For each name of a setting in TRL or verl, the name of the setting in AgentFly."""
_OPTION = re.compile(r"[a-z-]+\[.*\]", re.DOTALL)


def message_of(fault: ErrorDetails) -> str:
    """Return the message of an error of pydantic: "Input should be a valid integer"."""
    return str(fault["msg"]).removeprefix("Value error, ")


def with_value(fault: ErrorDetails) -> str:
    """Return the message of a pydantic error, followed by the wrong value: "Input should be a valid
    integer (got 'x')".
    """
    message, value = message_of(fault), fault.get("input")
    if value is None and fault["type"] != "invalid_key":
        return "got null, expected a value; only optional settings accept null"
    return message if repr(value) in message else f"{message} (got {value!r})"


def place(steps: Iterable[int | str]) -> str:
    """Return the dotted key of an error of pydantic, such as `adapter.targets`.

    `steps` is the location that pydantic reports. The names that pydantic adds for members of
    unions are removed.
    """
    return ".".join(str(step) for step in steps if not _OPTION.fullmatch(str(step)))


def settings_like(key: str, settings: Sequence[str]) -> list[str]:
    """Return the settings that a user may have meant by a wrong key.

    The result is `["update.learning_rate"]` for `learning_rate`, for `--update.learning-rate`, and
    for verl's `actor_rollout_ref.actor.optim.lr`. The result is empty if no setting has a
    similar name.
    """
    key = key.lstrip("-").replace("-", "_")
    # the sections of verl's keys differ, but the last part is often the same
    last = key.rpartition(".")[2]
    if key in settings:
        return [key]
    same = [name for name in settings if name.rpartition(".")[2] == last]
    synonyms = [SYNONYMS[last]] if last in SYNONYMS else []
    return sorted(same, key=lambda name: name.count(".")) + synonyms
