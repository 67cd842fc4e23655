"""The base class of the sections of the settings, and functions for dotted keys."""

from collections.abc import Iterator, Sequence
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.config import JsonDict

from agentfly_core.system.formats.json_value import JSON

Keys = tuple[str, ...]
Positive = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
RESUMABLE: JsonDict = {"resumable": True}
"""Marks a setting as resumable: it may change when a run is continued."""
OPEN = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)
"""A section with this configuration names a class or function. The section may have extra keys,
which are settings of this class or function.
"""


class Section(BaseModel):
    """A section of the settings. It is immutable and refuses unknown keys."""

    # nan does not equal nan, so settings with nan would never equal the recorded settings
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def at_keys(tree: JSON, keys: Sequence[str]) -> JSON:
    """Return the value at a path of keys, such as `("tools", "0")`, in nested mappings and lists.

    Returns None if a key is missing from a mapping.
    """
    for key in keys:
        if isinstance(tree, list):
            tree = tree[int(key)]
        else:
            tree = tree.get(key) if isinstance(tree, dict) else None
    return tree


def resumable(kind: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Yield the dotted keys of the settings that may change when a run continues: `"steps"`,
    `"update.learner_every"`.
    """
    for key, field in kind.model_fields.items():
        if isinstance(field.json_schema_extra, dict) and field.json_schema_extra.get("resumable"):
            yield f"{prefix}{key}"
        elif isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from resumable(field.annotation, f"{prefix}{key}.")


BY_NAME = BeforeValidator(lambda value: {"use": value} if isinstance(value, str) else value)
"""A validator that lets a section have a short form: `grpo` instead of `{use: grpo}`."""
