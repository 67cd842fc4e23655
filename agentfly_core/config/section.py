"""The base class of configuration sections, and of sections that are chosen by name."""

from collections.abc import Iterator, Sequence
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.config import JsonDict

from agentfly_core.system.formats.json_value import JSON

Keys = tuple[str, ...]
Positive = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
RESUMABLE: JsonDict = {"resumable": True}
"""Marks a setting that may change when a run is continued."""
OPEN = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)
"""Allows keys besides the fields of a section: the settings of the class or function that it names.
"""


class Section(BaseModel):
    """A section of the configuration. It is immutable and refuses unknown keys."""

    # nan is not equal to itself, so settings with nan would never equal the recorded ones
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def at_keys(tree: JSON, keys: Sequence[str]) -> JSON:
    """Return the value at a path of keys in a dumped configuration, such as `("tools", "0")`, or
    None.
    """
    for key in keys:
        if isinstance(tree, list):
            tree = tree[int(key)]
        else:
            tree = tree.get(key) if isinstance(tree, dict) else None
    return tree


def resumable(kind: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Yield the dotted keys that may change when a run continues: `"steps"`,
    `"update.learner_every"`.
    """
    for key, field in kind.model_fields.items():
        if isinstance(field.json_schema_extra, dict) and field.json_schema_extra.get("resumable"):
            yield f"{prefix}{key}"
        elif isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from resumable(field.annotation, f"{prefix}{key}.")


BY_NAME = BeforeValidator(lambda value: {"use": value} if isinstance(value, str) else value)
"""Accepts a name as short form of `{use: name}`."""
