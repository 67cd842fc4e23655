"""A sweep: all combinations of values and seeds, and the stored list of its runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

from agentfly_core.config import loading
from agentfly_core.config.reference import NAME
from agentfly_core.experiment.run_layout import finished_summary, record_of
from agentfly_core.runs.listing import in_store
from agentfly_core.store.store import Store
from agentfly_core.system.formats import strict_yaml
from agentfly_core.system.formats.checksummed_json import Damaged
from agentfly_core.system.formats.text import counted, did_you_mean

PREFIX = "sweep:"


@dataclass(frozen=True, slots=True)
class Member:
    """A run of a sweep: `Member("quickstart-1f2e3d4c", ("rollout.problems=8", "seed=1"))`."""

    run: str
    overrides: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sweep:
    """sweeps/NAME.json, with `overrides` and `seeds` of the command.

    Sweep("rates", "quickstart", ("update.learning_rate=1e-4,3e-4",), 3, "local",
          (Member("quickstart-1f2e3d4c", ...), ...))
    """

    name: str
    experiment: str
    overrides: tuple[str, ...]
    seeds: int | None
    site: str
    members: tuple[Member, ...]

    def command(self, store: Store) -> str:
        """The command that starts and continues it."""
        seeds = [] if self.seeds is None else ["--seeds", str(self.seeds)]
        site = [] if self.site == "local" else ["--site", self.site]
        words = [self.experiment, *self.overrides, *seeds, "--name", self.name, *site]
        return in_store(store, "agentfly", "sweep", *words)

    def differing(self, member: Member) -> str:
        """The settings that not all runs have, "update.learning_rate=1e-4 seed=1", or its name."""
        shared = set.intersection(*({*one.overrides} for one in self.members))
        own = [setting for setting in member.overrides if setting not in shared]
        return " ".join(own) or member.run

    def unfinished(self, store: Store) -> list[Member]:
        """The unfinished runs, in order."""
        return [member for member in self.members if not is_finished(store, member.run)]

    def write(self, store: Store) -> None:
        """Store it; raises ValueError if the stored sweep of this name has other runs."""
        before = stored_sweep(store, self.name)
        if before and not {m.run for m in before.members} <= {m.run for m in self.members}:
            raise ValueError(
                f"The sweep {self.name!r} has other runs; this continues it: "
                f"{before.command(store)}\nUse another --name, or only add values and seeds."
            )
        store.write_json(_uri(self.name), asdict(self))


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


def stored_sweep(store: Store, name: str) -> Sweep | None:
    """A sweep by its name, or None; raises ValueError for a wrong name, and Damaged."""
    if not re.fullmatch(NAME, name):
        raise ValueError(
            f"Got the sweep {name!r}, expected letters, digits, '.', '_' and '-', such as rates."
        )
    try:
        fields: Any = store.read_json(_uri(name))
    except Damaged as damage:
        raise Damaged(f"{damage} Remove it and repeat the `agentfly sweep` command.") from None
    if fields is None:
        return None
    members = tuple(Member(each["run"], tuple(each["overrides"])) for each in fields["members"])
    return Sweep(**{**fields, "overrides": tuple(fields["overrides"]), "members": members})


def is_finished(store: Store, run: str) -> bool:
    """Whether a run has done all its steps."""
    record = record_of(store, run)
    return bool(record and finished_summary(store, run, record["settings"]["steps"]))


def runs_named(store: Store, references: Sequence[str]) -> list[str]:
    """Distinct references, with the runs of each `sweep:NAME` in its place.

    Raises ValueError for a missing or unfinished sweep.
    """
    names: list[str] = []
    for reference in references:
        if not reference.startswith(PREFIX):
            names.append(reference)
            continue
        name = reference.removeprefix(PREFIX)
        if (sweep := stored_sweep(store, name)) is None:
            sweeps = [stored.removesuffix(".json") for stored in store.names("sweeps")]
            raise ValueError(
                f"There is no sweep {name!r} in {store.uri}.{did_you_mean(name, sweeps)}"
            )
        if left := sweep.unfinished(store):
            raise ValueError(
                f"{reference} is not finished, {len(left)} of {counted(len(sweep.members), 'run')} "
                f"left. This finishes it: {sweep.command(store)}"
            )
        names += [member.run for member in sweep.members]
    return list(dict.fromkeys(names))


def _uri(name: str) -> str:
    return f"sweeps/{name}.json"
