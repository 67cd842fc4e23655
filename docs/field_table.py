"""The table of request fields in docs/how-to/bring-an-agent.md."""

import json
from itertools import groupby

from agentfly_core.gateway.fields import FIELDS, Treatment


def table() -> str:
    """Return the table in Markdown."""
    rows = (
        f"| {', '.join(map(_shown, names))} | {treatment} | {note} |"
        for (treatment, note), names in groupby(FIELDS, key=_row)
    )
    return "\n".join(["| field | treatment | details |", "|---|---|---|", *rows])


def _row(name: str) -> tuple[Treatment, str]:
    """The treatment and the note of a field, which neighbours share."""
    rule = FIELDS[name]
    return rule.treatment, "" if rule.neutral else rule.note


def _shown(name: str) -> str:
    values = (f"{name}: {json.dumps(value)}" for value in FIELDS[name].neutral)
    return " or ".join(f"`{text}`" for text in values) or f"`{name}`"
