"""The runs of a store: which are finished, who works on which, the command that continues each."""

from __future__ import annotations

import shlex
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
from agentfly_core.records.run_record import RunRecord
from agentfly_core.runs.run import record_of, summary_of

STYLES = {"finished": "green", "running": "cyan", "stopped": "yellow"}


@dataclass(frozen=True, slots=True)
class Listed:
    """A run as it stands; `step` is the last one whose policy is published, `success` is held-out,
    None before the end.

    `Listed("quickstart-1f2e3d4c", "stopped", "", 7, 15, None, "agentfly train quickstart --run
    quickstart-1f2e3d4c")`
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
    """A run whose run.json is damaged:
    `Unreadable("demo", "/lab/runs/demo/run.json is damaged: ...")`.
    """

    name: str
    fault: str


def listed(store: Store) -> list[Listed | Unreadable]:
    """The runs of a store, by name."""
    found: list[Listed | Unreadable] = []
    for name in store.names("runs"):
        try:
            if (record := record_of(store, name)) is not None:
                found.append(_listed(store, name, record))
        except Damaged as damage:
            found.append(Unreadable(name, str(damage)))
    return found


def view(runs: list[Listed | Unreadable], store: Store) -> RenderableType:
    """Two lines a run: how it stands, and the command that continues it (or, if it is finished,
    reads it).
    """
    if not runs:
        return Text(f"There is no run in {store.uri} yet. Start one: agentfly train quickstart")
    width = max(len(run.name) for run in runs)
    shown = []
    for run in runs:
        name = (f"{run.name:<{width}}  ", "bold")
        if isinstance(run, Unreadable):
            shown += [Text.assemble(name, ("damaged", "red")), Text(f"  {run.fault}", "dim")]
            continue
        success = "" if run.success is None else f"  held-out success {run.success:.1%}"
        owner = f"  {run.owner}" if run.owner else ""
        line = Text.assemble(name, (f"{run.state:<8}", STYLES[run.state]))
        line.append(f"  step {run.step}/{run.steps}{success}{owner}")
        shown += [line, Text(f"  {run.command}", "dim")]
    return Group(*shown)


def continuing(store: Store, name: str, record: RunRecord) -> str:
    """The exact command that continues a run, given its run.json: every setting that differs from
    the file is in it.
    """
    what, overrides = experiment_of(record)
    site = record["site"]["name"]
    where = [] if site == "local" else ["--site", site]
    return in_store(store, "agentfly", "train", what, *overrides, "--run", name, *where)


def experiment_of(record: RunRecord) -> tuple[str, list[str]]:
    """The experiment of a run and the settings that differ from its file as it is now, as a command
    names them: `("quickstart", ["seed=1"])`.
    """
    path = next((Path(o) for o in record["origin"].values() if o.endswith((".yaml", ".yml"))), None)
    known = path is None or path.parent == loading.CONF
    return record["experiment"] if known else str(path), _overrides(path, record)


def in_store(store: Store, *words: str) -> str:
    """A command as it is to be typed; it names the store unless that is the one taken when none is
    named.
    """
    default = Store.at(loading.site("local").store, store.root)
    return shlex.join([*words, *([] if store.uri == default.uri else ["--store", store.uri])])


def _overrides(path: Path | None, record: RunRecord) -> list[str]:
    """Each setting in which a run differs from its experiment's file as it is now, as `key=value`.

    Where that cannot be read: each one that was overridden when the run was started.
    """
    science = Science.restored(record["science"])
    try:
        now = loading.read(str(path)).science.model_dump(mode="json")
    except ValueError:
        keys = [key for key, origin in record["origin"].items() if origin == "override"]
    else:
        keys = [change.key for change in loading.differences(now, science)]

    values = loading.flat(science)
    absent = [section for section, value in values.items() if value is None]
    whole = set()
    for key in keys:
        section = next((one for one in absent if key.startswith(f"{one}.")), key)
        # an import path has dots of its own
        whole.add(section.partition(".")[0] if ":" in section else section)

    words = []
    for key in sorted(whole):
        value = values.get(key, science.get(key))
        text = yaml.safe_dump(value, default_flow_style=True, width=100_000).removesuffix("...\n")
        words.append(f"{key}={text.strip()}")
    return words


def _start_step(record: RunRecord) -> int:
    """The step that a fork goes on from, 0 for other runs."""
    fork = record["science"].get("fork")
    step = fork["step"] if isinstance(fork, dict) else 0
    assert isinstance(step, int)
    return step


def _listed(store: Store, name: str, record: RunRecord) -> Listed:
    layout, steps = RunLayout(name), record["science"]["steps"]
    assert isinstance(steps, int)
    remote, here = store.remote, store.root / layout.uri
    owner = leaseholder(remote, layout.uri) if remote else holder_of(here)
    published = [step for step in layout.steps(store) if store.holds(layout.step(step).policy)]
    summary = summary_of(store, name)
    done = summary is not None and summary["steps"] == steps
    state: Literal["finished", "running", "stopped"] = "running" if owner else "stopped"
    return Listed(
        name=name,
        state="finished" if done else state,
        owner=owner,
        step=max(published, default=_start_step(record)),
        steps=steps,
        success=summary["success_after"] if summary and done else None,
        command=in_store(store, "agentfly", "show", name)
        if done
        else continuing(store, name, record),
    )
