"""A sweep: one run for each combination of values of settings and seeds.

All runs of a sweep have the name of the sweep as a tag.
"""

from collections.abc import Sequence
from itertools import product
from operator import itemgetter

from agentfly_core.config import loading
from agentfly_core.experiment.run_layout import finished_summary, record_of
from agentfly_core.runs.run_tags import tags_of
from agentfly_core.store.store import Store
from agentfly_core.system.formats import strict_yaml

PREFIX = "sweep:"


def alternatives(override: str) -> list[str]:
    """Split an override with several values into one override for each value.

    The values are separated by commas. Each of these examples becomes two overrides:
    `update.learning_rate=1e-4,3e-4` and `update.betas=[0.9, 0.95],[0.8, 0.9]`. Raises ValueError if
    the values are not valid YAML.
    """
    key, _, value = override.partition("=")
    try:
        listed = strict_yaml.items(f"[{value}]")
    except ValueError:
        raise ValueError(
            f"{key}: the values are not valid YAML, expected {key}=VALUE or {key}=VALUE,VALUE; "
            "quote texts with commas or brackets."
        ) from None
    # `key=` has an empty list of values, but is a valid override
    return [f"{key}={item}" for item in listed] or [override]


def grid(experiment: str, overrides: Sequence[str], seeds: int | None) -> list[list[str]]:
    """Return a list of overrides for each run of a sweep.

    An override can have several values (see `alternatives`). The sweep has a run for each
    combination of these values. If `seeds` is a number, each combination has this number of runs.
    Their seeds are consecutive, and the first is the seed of the experiment. If `seeds` is None, no
    seeds are added.

    If data.seed is not set, all runs use the problems of the first seed. Raises ValueError if a key
    is given twice. Also raises ValueError if `seeds` is given, and the overrides contain `seed`.
    """
    keys = [override.partition("=")[0] for override in overrides]
    if twice := [key for key in keys if keys.count(key) > 1]:
        raise ValueError(
            f"{twice[0]} is given twice: list its values in one override, {twice[0]}=VALUE,VALUE."
        )
    if seeds is not None and "seed" in keys:
        raise ValueError("Got both seed= and --seeds: give only one of them.")
    combined = [list(member) for member in product(*map(alternatives, overrides))]
    base = loading.read(experiment).settings.seed
    members = [
        [*member, *([] if seeds is None else [f"seed={base + number}"])]
        for number in range(seeds or 1)
        for member in combined
    ]
    first = loading.read(experiment, members[0]).settings.seed
    for member in members:
        settings = loading.read(experiment, member).settings
        if settings.seed != first and settings.data.seed is None:
            member.append(f"data.seed={first}")
    return members


def is_finished(store: Store, run: str) -> bool:
    """Whether a run has done all of its steps."""
    record = record_of(store, run)
    return bool(record and finished_summary(store, run, record["settings"]["steps"]))


def runs_named(store: Store, references: Sequence[str]) -> list[str]:
    """Return `references`, with each `sweep:NAME` replaced by the names of the sweep's runs.

    The runs of a sweep have the tag NAME. The oldest run comes first. Raises ValueError if no run
    has the tag, and Damaged if a run.json is damaged.
    """
    names: list[str] = []
    for reference in references:
        tag = reference.removeprefix(PREFIX)
        if tag == reference:
            names.append(reference)
            continue
        records = [
            record
            for run in store.names("runs")
            if tag in tags_of(store, run) and (record := record_of(store, run))
        ]
        if not records:
            raise ValueError(
                f"No run in {store.uri} has the tag {tag!r}; `agentfly list` shows all runs."
            )
        names += [record["name"] for record in sorted(records, key=itemgetter("created_ms"))]
    return names
