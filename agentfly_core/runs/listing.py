"""The runs of a store: which are finished, who works on which, and the command that continues each."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import yaml
from rich.console import Group, RenderableType
from rich.text import Text

from agentfly_core.artifacts.lease import leaseholder
from agentfly_core.artifacts.lock import holder_of
from agentfly_core.artifacts.run_layout import RunLayout
from agentfly_core.artifacts.store import Store
from agentfly_core.config import loading
from agentfly_core.config.experiment import Science
from agentfly_core.formats.checksummed_json import Damaged
from agentfly_core.formats.json_value import JSON
from agentfly_core.records.run_record import RunRecord
from agentfly_core.runs.run import record_of, summary_of

STYLES = {"finished": "green", "running": "cyan", "stopped": "yellow"}


@dataclass(frozen=True, slots=True)
class Listed:
    """A run as it stands; `step` is the last one whose policy is published, `success` is held-out, None before the end.

    `Listed("quickstart-1f2e3d4c", "stopped", "", 7, 15, None, "agentfly train quickstart --run quickstart-1f2e3d4c")`
    """

    name: str
    state: Literal["finished", "running", "stopped"]
    owner: str
    step: int
    steps: int
    success: float | None
    command: str


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A run whose run.json is damaged: `Unreadable("demo", "/lab/runs/demo/run.json is damaged: ...")`."""

    name: str
    fault: str


def listed(store: Store) -> list[Listed | Unreadable]:
    """The runs of a store, by name."""
    found = [_of(store, name) for name in store.names("runs")]
    return [run for run in found if run is not None]


def view(runs: list[Listed | Unreadable], store: Store) -> RenderableType:
    """Two lines a run: how it stands, and the command that continues it (or, if it is finished, reads it)."""
    if not runs:
        return Text(f"There is no run in {store.uri} yet. Start one: agentfly train quickstart")
    width = max(len(run.name) for run in runs)
    return Group(*(line for run in runs for line in _view(run, width)))


def continuing(store: Store, name: str, record: RunRecord) -> str:
    """The exact command that continues a run, given its run.json: every setting that differs from the file is in it."""
    path = next((Path(o) for o in record["origin"].values() if o.endswith((".yaml", ".yml"))), None)
    known = path is None or path.parent == loading.CONF
    words = ["agentfly", "train", record["experiment"] if known else str(path), *_overrides(path, record)]
    words += ["--run", name]
    words += [] if record["site"]["name"] == "local" else ["--site", record["site"]["name"]]
    return in_store(store, *words)


def in_store(store: Store, *words: str) -> str:
    """A command as it is to be typed; it names the store unless that is the one taken when none is named."""
    default = Store.at(loading.site("local").store, store.root)
    return shlex.join([*words, *([] if store.uri == default.uri else ["--store", store.uri])])


def _overrides(path: Path | None, record: RunRecord) -> list[str]:
    science = Science.restored(record["science"])
    keys = _differing(path, science)
    if keys is None:
        keys = [key for key, origin in record["origin"].items() if origin == "override"]
    values = loading.flat(science)
    absent = [section for section, value in values.items() if value is None]
    keys = [next((section for section in absent if key.startswith(f"{section}.")), key) for key in keys]
    whole = {key.partition(".")[0] if ":" in key else key for key in keys}  # an import path has dots of its own
    return [f"{key}={_yaml(values.get(key, science.get(key)))}" for key in sorted(whole)]


def _differing(path: Path | None, science: Mapping[str, JSON]) -> list[str] | None:
    """The keys in which a run differs from its experiment's file as it is now; None when that cannot be read."""
    try:
        now = loading.read(str(path)).science.model_dump(mode="json")
    except ValueError:
        return None
    return [change.key for change in loading.differences(now, science)]


def _yaml(value: JSON) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=100_000).removesuffix("...\n").strip()


def _of(store: Store, name: str) -> Listed | Unreadable | None:
    try:
        record = record_of(store, name)
        return _listed(store, name, record) if record is not None else None
    except Damaged as damage:
        return Unreadable(name, str(damage))


def _listed(store: Store, name: str, record: RunRecord) -> Listed:
    owner, steps = _owner(store, name), record["science"]["steps"]
    assert isinstance(steps, int)
    summary = summary_of(store, name)
    done = summary is not None and summary["steps"] == steps
    state: Literal["finished", "running", "stopped"] = "finished" if done else "running" if owner else "stopped"
    success = summary["success_after"] if summary and done else None
    return Listed(
        name=name,
        state=state,
        owner=owner,
        step=_last_step(store, name),
        steps=steps,
        success=success,
        command=in_store(store, "agentfly", "show", name) if done else continuing(store, name, record),
    )


def _owner(store: Store, name: str) -> str:
    """Who works on the run now, in words; empty when nobody does."""
    uri = RunLayout(name).uri
    return leaseholder(store.remote, uri) if store.remote else holder_of(store.root / uri)


def _last_step(store: Store, name: str) -> int:
    layout = RunLayout(name)
    return max((step for step in layout.steps(store) if store.holds(layout.step(step).policy)), default=0)


def _view(run: Listed | Unreadable, width: int) -> list[Text]:
    if isinstance(run, Unreadable):
        return [Text.assemble((f"{run.name:<{width}}  ", "bold"), ("damaged", "red")), Text(f"  {run.fault}", "dim")]
    success = "" if run.success is None else f"  held-out success {run.success:.1%}"
    owner = f"  {run.owner}" if run.owner else ""
    line = Text.assemble((f"{run.name:<{width}}  ", "bold"), (f"{run.state:<8}", STYLES[run.state]))
    return [line.append(f"  step {run.step}/{run.steps}{success}{owner}"), Text(f"  {run.command}", "dim")]
