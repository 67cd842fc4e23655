"""YAML 1.2: `010` is 10, `1e-4` a number, `no` and `1:30` are text. Keys are unique."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import AliasEvent, CollectionStartEvent
from ruamel.yaml.nodes import MappingNode, Node

from agentfly_core.system.formats.json_value import JSON
from agentfly_core.system.formats.text import sentence, shown

MAX_DEPTH = 64


class _Composer(Composer):
    """Refuses repeated keys, values that contain themselves, more than 64 levels and YAML 1.1."""

    def __init__(self, loader: Any = None) -> None:
        super().__init__(loader)
        self._around: list[str | None] = []

    def compose_document(self) -> Any:
        start: Any = self.parser.peek_event()
        if start.version not in (None, (1, 2)):  # ruamel would read `no` as false
            version = ".".join(map(str, start.version))
            raise MarkedYAMLError(None, None, f"%YAML {version} is not read, remove the line")
        return super().compose_document()

    def compose_node(self, parent: Node | None, index: Any) -> Any:
        event: Any = self.parser.peek_event()
        anchor, mark = event.anchor, event.start_mark
        if isinstance(event, AliasEvent) and anchor in self._around:
            raise MarkedYAMLError(None, None, f"*{anchor} contains itself", mark)
        if isinstance(event, CollectionStartEvent) and len(self._around) == MAX_DEPTH:
            raise MarkedYAMLError(None, None, f"it is more than {MAX_DEPTH} levels deep", mark)
        self._around.append(anchor)
        try:
            return super().compose_node(parent, index)
        finally:
            self._around.pop()

    def compose_mapping_node(self, anchor: Any) -> MappingNode:
        node: MappingNode = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if str(key.value) in seen:
                raise MarkedYAMLError(
                    None, None, f"the key {key.value!r} is there twice", key.start_mark
                )
            seen.add(str(key.value))
        return node


def parse(text: str | bytes, source: str) -> JSON:
    """The value of a YAML text; raises ValueError with source, line and fault."""
    try:
        value: JSON = _yaml().load(text)
        return value
    except MarkedYAMLError as error:
        raise ValueError(_explained(error, text, source)) from None
    except (YAMLError, ValueError) as error:
        raise ValueError(f"{source} is no valid YAML: {sentence(str(error))}") from None


def settings(path: Path) -> dict[str, JSON]:
    """The settings in a YAML file; raises ValueError for another content."""
    value = parse(path.read_bytes(), str(path))
    if value is not None and not isinstance(value, dict):
        raise ValueError(
            f"{path} holds a {type(value).__name__}, expected settings, one `key: value` a line."
        )
    return value or {}


def dump(value: object, flow: bool = False, sort_keys: bool = True) -> str:
    """A value as YAML that `parse` reads back: with `flow` on one line, `{a: [1, 2]}`."""
    yaml: Any = _yaml()
    stream = StringIO()
    yaml.default_flow_style, yaml.width = flow, 100_000
    yaml.sort_base_mapping_type_on_output = sort_keys
    yaml.dump(value, stream)
    return stream.getvalue().removesuffix("...\n")


def items(text: str) -> list[str]:
    """The texts of a list's items: `items("[0.9, [1, 2]]")` is `["0.9", "[1, 2]"]`.

    Raises ValueError for invalid YAML.
    """
    try:
        node = _yaml().compose(text)
    except YAMLError as error:
        raise ValueError(sentence(str(error))) from None
    return [text[item.start_mark.index : item.end_mark.index] for item in node.value]


def _yaml() -> YAML:
    yaml = YAML(typ="safe", pure=True)
    yaml.Composer = _Composer
    return yaml


def _explained(error: MarkedYAMLError, text: str | bytes, source: str) -> str:
    fault, mark = str(error.problem), error.problem_mark
    if "<block" in fault:
        fault += "; indent the line like its neighbours"
    if mark is None:
        return f"{source} is no valid YAML: {sentence(fault)}"
    lines = (text.decode("utf-8", "replace") if isinstance(text, bytes) else text).splitlines()
    line = lines[mark.line].strip() if len(lines) > 1 and mark.line < len(lines) else ""
    where = f"{source}, line {mark.line + 1}, column {mark.column + 1}"
    quoted = f" The line: {shown(line)}." if line else ""
    return f"{where} is no valid YAML: {sentence(fault)}{quoted}"
