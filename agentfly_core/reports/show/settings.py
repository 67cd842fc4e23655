"""The settings of an experiment and its site, with their origins."""

from __future__ import annotations

import json
from collections.abc import Mapping

from rich.table import Column, Table

from agentfly_core.config import loading
from agentfly_core.experiment.experiment import Experiment


def settings_table(experiment: Experiment, site: Mapping[str, str], changed: bool) -> Table:
    """A row for each setting; with `changed` only those that differ from the defaults.

    `site` has the origins of the site's settings.
    """
    origin = {**experiment.origin, **loading.flat(dict(site), "site.")}
    values = loading.flat(experiment.settings.model_dump(mode="json"))
    values |= loading.flat(experiment.site.model_dump(), "site.")
    usual = loading.defaults() if changed else {}
    columns = (Column(name, overflow="fold") for name in ("setting", "value", "from"))
    table = Table(*columns, show_edge=False)
    for key, value in values.items():
        is_set = origin[key] not in ("default", loading.TASKS) and usual.get(key, ...) != value
        if is_set or not changed:
            table.add_row(key, json.dumps(value), str(origin[key]))
    return table
