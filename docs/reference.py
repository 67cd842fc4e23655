"""Writes pages of docs/reference from their templates and the code: `python -m docs.reference`.

`settings.template` has the text of settings.md and the meaning of each setting, as rows below the
import path of its class: `{agentfly_core.config.experiment:Update}`. Types and defaults are added.
"""

import json
import re
from collections.abc import Collection, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
from cyclopts import App
from pydantic import BaseModel

from agentfly_core.config.experiment import Settings
from agentfly_core.config.health_signs import SIGNS
from agentfly_core.config.section import resumable
from docs import metric_names
from flows.cli.app import COMMANDS, agentfly

FOLDER = Path(__file__).parent / "reference"
_TABLE = re.compile(r"^\{(agentfly_core[\w.]*:[\w.]+)\}\n((?:\|.*\n)+)", re.MULTILINE)
_METRICS = re.compile(r"^\{metrics\}\n((?:\|.*\n)+)", re.MULTILINE)
_SIGNS = re.compile(r"^\{signs\}\n((?:\|.*\n)+)", re.MULTILINE)
_EMPTY = re.compile(r" \*\[default: (\"\"|False|\[\]|\(\)|0)\]\*|, --(no|empty)-[\w-]+")
_SHARED = re.compile(
    r"^\* `(EXPERIMENT|KEY=VALUE|RUN|--site STR|--store STR|--json)`: .*\n", re.MULTILINE
)
_SUMMARY = re.compile(r"(?<=```\n\n).+")
_NO_ROWS = re.compile(r"^\*\*[\w ()]+\*\*\n\n+(?=\*\*|\Z)", re.MULTILINE)
Schema = Mapping[str, Any]


def type_of(schema: Schema) -> str:
    """The accepted values of a setting, in words: "integer (at least 1)"."""
    if "anyOf" in schema:
        return " or ".join(type_of(one) for one in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    names = {"array": "list", "object": "section", "boolean": "`true`, `false`", "string": "text"}
    name = names.get(kind := schema.get("type", "object"), "`null`" if kind == "null" else kind)
    bounds = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most"}
    limits = [f"{word} {schema[key]}" for key, word in bounds.items() if key in schema]
    return f"{name} ({', '.join(limits)})" if limits else name


def default_of(schema: Schema, required: bool) -> str:
    """The default of a setting as YAML, empty for a section."""
    if required:
        return "required"
    value = schema.get("default", {} if "$ref" not in schema else None)
    if "$ref" in schema or (isinstance(value, dict) and value):
        return ""
    return f"`{json.dumps(value)}`" if not isinstance(value, str) or not value else f"`{value}`"


def settings_table(model: type[BaseModel], meanings: Mapping[str, list[str]]) -> str:
    """The table of a section; a row with three cells has its own text for the default."""
    schema = model.model_json_schema()
    rows = ["| setting | type | default | meaning |", "|---|---|---|---|"]
    for name, field in schema["properties"].items():
        *default, meaning = meanings[name]
        text = default[0] if default else default_of(field, name in schema.get("required", ()))
        rows.append(f"| `{name}` | {type_of(field)} | {text} | {meaning} |")
    return "\n".join(rows)


def arrow_type(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return f"list of {arrow_type(kind.value_type)}"
    return "fields" if pa.types.is_struct(kind) else str(kind)


def columns_table(columns: pa.Schema | pa.StructType, meanings: Mapping[str, list[str]]) -> str:
    rows = ["| column | type | content |", "|---|---|---|"]
    rows += [
        f"| `{one.name}` | {arrow_type(one.type)} | {meanings[one.name][0]} |" for one in columns
    ]
    return "\n".join(rows)


def named(path: str) -> Any:
    """A class, or the fields of a column: `agentfly_core.records.parquet:TRAJECTORY.turns`."""
    module, _, names = path.partition(":")
    first, *columns = names.split(".")
    value = getattr(import_module(module), first)
    for column in columns:
        value = value.field(column).type.value_type
    return value


def meanings_of(rows: str, names: Collection[str], place: str) -> dict[str, list[str]]:
    """The further cells of template rows by their first one; every name needs a row."""
    cells = [[cell.strip() for cell in row[1:-1].split("|")] for row in rows.splitlines()]
    meanings = {name.strip("`"): rest for name, *rest in cells}
    if different := {*names} ^ meanings.keys():
        raise ValueError(f"{place}: {sorted(different)} are only in the code or the template")
    return meanings


def table(match: re.Match[str]) -> str:
    """The table of a class or schema, with the meanings in the rows below its import path."""
    value = named(match[1])
    if isinstance(value, type) and issubclass(value, BaseModel):
        meanings = meanings_of(match[2], value.model_fields, match[1])
        return f"{settings_table(value, meanings)}\n"
    meanings = meanings_of(match[2], [one.name for one in value], match[1])
    return f"{columns_table(value, meanings)}\n"


def signs_table(match: re.Match[str]) -> str:
    """The shipped health signs with their bounds."""
    shipped = {name: sign for name, sign in SIGNS.items() if sign}
    meanings = meanings_of(match[1], shipped, "signs")
    rows = ["| sign | metric | bound | after | meaning |", "|---|---|---|---|---|"]
    for name, sign in shipped.items():
        bound = f"above {sign.above:g}" if sign.above is not None else f"below {sign.below:g}"
        after = f"{sign.steps} step{'s' * (sign.steps > 1)}"
        rows.append(f"| `{name}` | `{sign.metric}` | {bound} | {after} | {meanings[name][0]} |")
    return "\n".join(rows) + "\n"


def with_metrics(text: str) -> str:
    """The tables of metrics, which have every name in the code."""
    if tables := _METRICS.findall(text):
        meanings_of("".join(tables), metric_names.names(), "metrics")
    return _METRICS.sub(lambda match: f"| metric | meaning |\n|---|---|\n{match[1]}", text)


def command(app: App, name: str) -> str:
    """The help of a command as a section, without the arguments that most commands share."""
    text = app[name].generate_docs(output_format="markdown", heading_level=3)
    text = _EMPTY.sub("", text).replace("```console\n", "```text\nagentfly ")
    text = text.replace(f"### {name}\n", f"### agentfly {name}\n").replace("**:\n\n", "**\n\n")
    return _NO_ROWS.sub("", _SHARED.sub("", text).strip() + "\n\n").replace("    ", "  ")


def commands() -> str:
    """The help of all commands by group."""
    parts = []
    for title, *rows in map(str.splitlines, COMMANDS.strip().split("\n\n")):
        parts.append(f"## {title}\n")
        for row, example in zip(rows[::2], rows[1::2], strict=True):
            name = row.split()[0]
            text = command(agentfly([name]), name)
            with_example = rf"\g<0>\n\nFor example `{example.strip()}`."
            parts.append(_SUMMARY.sub(with_example, text, count=1))
    return "\n".join(part.strip() + "\n" for part in parts)


def page(template: Path) -> str:
    """The text of the page of a template."""
    text = _SIGNS.sub(signs_table, with_metrics(_TABLE.sub(table, template.read_text())))
    may_change = ", ".join(f"`{name}`" for name in sorted(resumable(Settings)))
    text = text.replace("{resumable}", may_change)
    return text.replace("{commands}\n", commands()) if "{commands}" in text else text


if __name__ == "__main__":
    for template in FOLDER.glob("*.template"):
        template.with_suffix(".md").write_text(page(template))
