"""The settings of a sweep's runs: each combination of the listed values, with each seed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from agentfly_core.config import loading
from agentfly_core.system.formats import strict_yaml


def alternatives(override: str) -> list[str]:
    """`update.betas=[0.9, 0.95],[0.8, 0.9]` as two settings: commas part values as in a YAML list,
    so that those within brackets or quotes do not.

    Raises ValueError for what no YAML list could hold.
    """
    key, _, value = override.partition("=")
    try:
        listed = strict_yaml.items(f"[{value}]")
    except ValueError:
        raise ValueError(
            f"{key}: got values that are no YAML, expected {key}=VALUE or {key}=VALUE,VALUE; put "
            "a text with a comma or a bracket of its own in quotes."
        ) from None
    return [f"{key}={item}" for item in listed] or [override]


def grid(experiment: str, overrides: Sequence[str], seeds: int | None) -> list[list[str]]:
    """The settings of each run, all those of the first seed first; `seeds` count from that of the
    experiment.

    Runs of further seeds get the problems of the first one, unless the data has a seed of its own;
    those of the first are what `agentfly train` does with these settings.
    Raises ValueError for seeds that are given twice, and for a key that is.
    """
    keys = [override.partition("=")[0] for override in overrides]
    if twice := [key for key in keys if keys.count(key) > 1]:
        raise ValueError(f"{twice[0]} is given twice: list its values, {twice[0]}=VALUE,VALUE.")
    if seeds is not None and "seed" in keys:
        raise ValueError(
            "Got seed= and --seeds: give one of them. --seeds 3 are three from the experiment's "
            "own, seed=5,7 are these."
        )
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
