"""Show the settings of an experiment, and where each value comes from."""

import json
from collections.abc import Mapping

from rich.table import Column, Table

from agentfly_core.config import loading
from agentfly_core.system.formats.json_value import JSON, flat


def settings_table(settings: Mapping[str, JSON], origin: Mapping[str, str], changed: bool) -> Table:
    """Return a table of settings with their values and origins.

    `origin` maps the dotted key of each setting, such as `update.epochs`, to the place where its
    value is set. If `changed` is True, the table has only the settings that differ from the
    defaults.
    """
    usual = loading.defaults() if changed else {}
    columns = (Column(name, overflow="fold") for name in ("setting", "value", "from"))
    table = Table(*columns, show_edge=False)
    for key, value in flat(settings).items():
        is_set = origin[key] not in ("default", loading.TASKS) and usual.get(key, ...) != value
        if is_set or not changed:
            table.add_row(key, json.dumps(value), origin[key])
    return table
