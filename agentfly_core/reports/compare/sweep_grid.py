"""Settings of a sweep's runs: all combinations of values and seeds."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from agentfly_core.config import loading
from agentfly_core.system.formats import strict_yaml


def alternatives(override: str) -> list[str]:
    """Split `update.betas=[0.9, 0.95],[0.8, 0.9]` into two settings, as a YAML list.

    Raises ValueError for invalid YAML.
    """
    key, _, value = override.partition("=")
    try:
        listed = strict_yaml.items(f"[{value}]")
    except ValueError:
        raise ValueError(
            f"{key}: the values are no YAML, expected {key}=VALUE or {key}=VALUE,VALUE; quote "
            "texts with commas or brackets."
        ) from None
    return [f"{key}={item}" for item in listed] or [override]


def grid(experiment: str, overrides: Sequence[str], seeds: int | None) -> list[list[str]]:
    """Settings of each run, by seed; `seeds` count from the experiment's seed.

    Further seeds get the problems of the first one, unless data.seed is set. Raises ValueError for
    a repeated key, and for both seed= and `seeds`.
    """
    keys = [override.partition("=")[0] for override in overrides]
    if twice := [key for key in keys if keys.count(key) > 1]:
        raise ValueError(f"{twice[0]} is given twice: list its values, {twice[0]}=VALUE,VALUE.")
    if seeds is not None and "seed" in keys:
        raise ValueError("Got seed= and --seeds: give one of them.")
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
