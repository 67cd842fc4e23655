"""Show an experiment's settings with their origins."""

import json
from collections.abc import Mapping

from rich.table import Column, Table

from agentfly_core.config import loading
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.system.formats.json_value import flat


def settings_table(experiment: Experiment, site: Mapping[str, str], changed: bool) -> Table:
    """Return a table of the settings of an experiment and of its site. `site` has the origins of
    the site's settings.

    With `changed`, the table has only the settings that differ from the defaults.
    """
    values = flat(experiment.settings.model_dump(mode="json"))
    values |= flat(experiment.site.model_dump(), "site.")
    origin = {**flat(dict(site), "site."), **experiment.origin}
    usual = loading.defaults() if changed else {}
    columns = (Column(name, overflow="fold") for name in ("setting", "value", "from"))
    table = Table(*columns, show_edge=False)
    for key, value in values.items():
        is_set = origin[key] not in ("default", loading.TASKS) and usual.get(key, ...) != value
        if is_set or not changed:
            table.add_row(key, json.dumps(value), str(origin[key]))
    return table
