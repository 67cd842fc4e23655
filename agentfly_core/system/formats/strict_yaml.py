"""Read and write YAML 1.2. `010` is the number 10, `1e-4` is a number, and `no`, `1:30` and
`2026-01-31` are texts. A repeated key is an error.
"""

from io import StringIO
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.constructor import SafeConstructor
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from agentfly_core.system.formats.json_value import JSON, require_levels
from agentfly_core.system.formats.text import sentence

MAX_DEPTH = 64


def parse(text: str | bytes, source: str) -> JSON:
    """Parse a YAML text. Raises ValueError if the text is invalid.

    `source`, for example the path of the file, is the name of the text in error messages. The
    messages also contain the line of the error, if it is known.
    """
    try:
        value: JSON = _yaml().load(text)
        require_levels(value, MAX_DEPTH)
        return value
    except MarkedYAMLError as error:
        raise ValueError(_explained(error, source)) from None
    except (YAMLError, ValueError, RecursionError) as error:
        raise ValueError(f"{source} is invalid YAML: {sentence(str(error))}") from None


def settings(path: Path) -> dict[str, JSON]:
    """Read the settings in a YAML file.

    Raises ValueError if the file is invalid, or if it does not contain a mapping.
    """
    value = parse(path.read_bytes(), str(path))
    if value is not None and not isinstance(value, dict):
        raise ValueError(
            f"{path} contains a {type(value).__name__}, expected settings, one `key: value` per "
            "line."
        )
    return value or {}


def dump(value: object, flow: bool = False, sort_keys: bool = True) -> str:
    """Return a value as YAML that `parse` can read.

    If `flow` is True, the result is a single line: `{a: [1, 2]}`.
    """
    yaml: Any = _yaml()
    stream = StringIO()
    yaml.default_flow_style, yaml.width = flow, 100_000
    yaml.sort_base_mapping_type_on_output = sort_keys
    yaml.dump(value, stream)
    return stream.getvalue().removesuffix("...\n")


def items(text: str) -> list[str]:
    """Split the text of a YAML list into the texts of its items: `items("[0.9, [1, 2]]")` is
    `["0.9", "[1, 2]"]`.

    Raises ValueError if the text is invalid YAML.
    """
    try:
        node = _yaml().compose(text)
    except (YAMLError, RecursionError) as error:
        raise ValueError(sentence(str(error))) from None
    return [text[item.start_mark.index : item.end_mark.index] for item in node.value]


class _Constructor(SafeConstructor):
    """A YAML constructor that reads dates as text, because JSON cannot express dates."""


_Constructor.add_constructor("tag:yaml.org,2002:timestamp", SafeConstructor.construct_yaml_str)


def _yaml() -> YAML:
    yaml = YAML(typ="safe", pure=True)
    yaml.Constructor = _Constructor
    return yaml


def _explained(error: MarkedYAMLError, source: str) -> str:
    fault = str(error.problem).partition(" with value ")[0]  # the value may be a secret
    mark = error.problem_mark
    where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    return f"{source}{where} is invalid YAML: {sentence(fault)}"
