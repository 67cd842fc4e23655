"""A part of the configuration, one that is chosen by name, and a setting that a release adds."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.config import JsonDict

from agentfly_core.formats.json_value import JSON

T = TypeVar("T")
Keys = tuple[str, ...]
Positive = Annotated[int, Field(ge=1)]
RESUMABLE: JsonDict = {"resumable": True}
"""Marks a setting that may change when a run is continued."""
OPEN = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)
"""Of a section with further keys, the settings of what it names."""


@dataclass(frozen=True, slots=True)
class Added:
    """Marks a setting that earlier releases did not have, with the JSON value that means the same.

    `warmup: Annotated[int, Added(before=0)] = 0`. Where a setting has that value it is no part of
    the identity, so that experiments and runs keep their digests and names. `before` stays for
    ever, also when the default changes.
    """

    before: JSON


class Section(BaseModel):
    """A part of the configuration: frozen, and closed to unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def identity(self) -> dict[str, JSON]:
        """What it says, as JSON that is the same in all releases, whatever they have added."""
        said: dict[str, JSON] = self.model_dump(mode="json")
        for (*section, key), before in self.added():
            held = at_keys(said, section)
            if isinstance(held, dict) and key in held and held[key] == before:
                del held[key]
        return said

    @classmethod
    def restored(cls, identity: Mapping[str, JSON]) -> dict[str, JSON]:
        """All that an `identity` of this or an earlier release says, what it left out too.

        One that this release cannot read is returned as it is.
        """
        try:
            added = [*cls.model_validate(identity).added()]
        except ValueError:  # a setting or its code is gone, which those who compare will tell
            return dict(identity)
        said = copy.deepcopy(dict(identity))
        for (*section, key), before in reversed(added):
            if isinstance(held := at_keys(said, section), dict):
                held.setdefault(key, copy.deepcopy(before))
        return said

    def added(self) -> Iterator[tuple[Keys, JSON]]:
        """The settings that were added to it and its sections, inner ones first, with `before`."""
        for name, field in type(self).model_fields.items():
            for keys, before in added_within(getattr(self, name)):
                yield (name, *keys), before
            for mark in field.metadata:
                if isinstance(mark, Added):
                    yield (name,), mark.before


def added_within(value: Any) -> Iterator[tuple[Keys, JSON]]:
    """What was added to the sections that a value is or holds, see `Section.added`."""
    if isinstance(value, Section):
        yield from value.added()
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from (((key, *keys), before) for keys, before in added_within(item))


def at_keys(tree: JSON, keys: Sequence[str]) -> JSON:
    """What stands at keys within a dumped configuration, at `("tools", "0")` the first tool; None
    where nothing does.
    """
    for key in keys:
        if isinstance(tree, list):
            tree = tree[int(key)]
        else:
            tree = tree.get(key) if isinstance(tree, dict) else None
    return tree


def resumable(kind: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """The dotted keys that may change when a run is continued: `"steps"`, `"update.learner_every"`,
    ...
    """
    for key, field in kind.model_fields.items():
        if isinstance(field.json_schema_extra, dict) and field.json_schema_extra.get("resumable"):
            yield f"{prefix}{key}"
        elif isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from resumable(field.annotation, f"{prefix}{key}.")


def by_name(value: T) -> T | dict[str, str]:
    """A name alone as a section: `{"use": "clip"}` for "clip"; anything else stays as it is."""
    return {"use": value} if isinstance(value, str) else value


BY_NAME = BeforeValidator(by_name)
"""Where one of several sections is chosen by its `use`, the name alone is short for `{use: name}`.
"""
