"""YAML written by people: no key twice, and 1e-4 is a number as it is everywhere else."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from agentfly_core.formats.json_value import JSON
from agentfly_core.formats.text import sentence

MAX_DEPTH = 64


class _Loader(yaml.SafeLoader):
    """Refuses a key that a mapping has already, a value that contains itself, and more than 64
    levels.
    """

    def __init__(self, text: str | bytes) -> None:
        super().__init__(text)
        self._around: list[str | None] = []

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        anchor, mark = event.anchor, event.start_mark
        if isinstance(event, yaml.AliasEvent) and anchor in self._around:
            raise yaml.MarkedYAMLError(None, None, f"*{anchor} stands within what it names", mark)
        if isinstance(event, yaml.CollectionStartEvent) and len(self._around) == MAX_DEPTH:
            raise yaml.MarkedYAMLError(None, None, f"it is more than {MAX_DEPTH} levels deep", mark)
        self._around.append(anchor)
        try:
            return super().compose_node(parent, index)
        finally:
            self._around.pop()

    def compose_mapping_node(self, anchor: dict[Any, yaml.Node]) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if str(key.value) in seen:
                raise yaml.MarkedYAMLError(
                    None, None, f"the key {key.value!r} is there twice", key.start_mark
                )
            seen.add(str(key.value))
        return node


EXPONENT = re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$")
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", EXPONENT, list("-+0123456789"))


def parse(text: str | bytes, source: str) -> JSON:
    """The value of a YAML text; raises ValueError with its source, the fault and where it is."""
    try:
        found: JSON = _Loader(text).get_single_data()
        return found
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ValueError(
            f"{source}{where} is no valid YAML: {sentence(str(error.problem))}"
        ) from None
    except (yaml.YAMLError, ValueError) as error:
        raise ValueError(f"{source} is no valid YAML: {sentence(str(error))}") from None


def settings(path: Path) -> dict[str, JSON]:
    """The settings in a YAML file, one `key: value` a line; raises ValueError for a file that holds
    anything else.
    """
    found = parse(path.read_bytes(), str(path))
    if found is not None and not isinstance(found, dict):
        raise ValueError(
            f"{path} holds a {type(found).__name__}, expected settings, one `key: value` a line."
        )
    return found or {}
