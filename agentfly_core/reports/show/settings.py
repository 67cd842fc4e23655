"""The settings of an experiment and its site, with their origins."""

from __future__ import annotations

import json
from collections.abc import Mapping

from rich.table import Column, Table

from agentfly_core.config import loading
from agentfly_core.system.formats.json_value import JSON


def settings_table(values: Mapping[str, JSON], origin: Mapping[str, JSON], changed: bool) -> Table:
    """A row for each setting; with `changed` only those that differ from the defaults.

    `values` and `origin` have the dotted keys of settings and site.
    """
    usual = loading.defaults() if changed else {}
    columns = (Column(name, overflow="fold") for name in ("setting", "value", "from"))
    table = Table(*columns, show_edge=False)
    for key, value in values.items():
        is_set = origin[key] not in ("default", loading.TASKS) and usual.get(key, ...) != value
        if is_set or not changed:
            table.add_row(key, json.dumps(value), str(origin[key]))
    return table
