"""List the runs of a store with their states, owners and next commands. The list can be filtered
and sorted.
"""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from rich.console import Group, RenderableType
from rich.text import Text

from agentfly_core.config import loading
from agentfly_core.config.loading import override
from agentfly_core.experiment.run_layout import RunLayout, finished_summary, record_of, run_records
from agentfly_core.experiment.user_code import edited
from agentfly_core.records.run_record import RunRecord
from agentfly_core.runs.run_tags import tags_of
from agentfly_core.store.lease import holder_in
from agentfly_core.store.store import Store
from agentfly_core.system.formats import strict_yaml
from agentfly_core.system.formats.checksummed_json import Damaged
from agentfly_core.system.formats.json_value import JSON, flat
from agentfly_core.system.formats.text import clip, did_you_mean, fault

STYLES = {"finished": "green", "running": "cyan", "stopped": "yellow"}
LONGEST_WORD = 80
FIELDS = ("tag", "experiment", "state", "name")
"""Keys that `agentfly list --filter KEY=VALUE` accepts in addition to the names of settings."""
Sorting = Literal["name", "time", "success", "step"]


@dataclass(frozen=True, slots=True)
class Listed:
    """The state of a run.

    - `owner`: the process that is writing the run, or empty
    - `step`: the last step with a published policy
    - `steps`: the number of steps that the settings ask for
    - `success`: the success rate (0 to 1) on held-out problems after training, if the run is
      finished
    - `command`: the command that continues the run or shows it
    - `changed`: the settings that differ from the experiment's file
    - `edited`: the functions that changed since the run began

        Listed(
            "quickstart-1f2e3d4c", "stopped", "", 7, 15, None,
            "agentfly train quickstart seed=1 --run quickstart-1f2e3d4c", experiment="quickstart",
            created_ms=1763740000000, tags=("baseline",), changed={"seed": 1},
            settings={"seed": 1, "update.learning_rate": 3e-4, ...}, edited=("my_shop.price",),
        )
    """

    name: str
    state: Literal["finished", "running", "stopped"]
    owner: str
    step: int
    steps: int
    success: float | None
    command: str
    experiment: str
    created_ms: int
    tags: tuple[str, ...]
    changed: Mapping[str, JSON]
    settings: Mapping[str, JSON]
    edited: tuple[str, ...] = ()

    @classmethod
    def of(cls, store: Store, name: str, record: RunRecord) -> Listed:
        """Return the state of a run of a store. `record` is the content of its run.json."""
        layout, steps = RunLayout(name), record["settings"]["steps"]
        fork = record["settings"].get("fork")
        start = fork["step"] if fork else 0
        owner = holder_in(store, layout.uri)
        begun = reversed(layout.steps(store))
        held = (step for step in begun if store.holds(layout.step(step).policy))
        summary = finished_summary(store, name, steps)
        show = in_store(store, "agentfly", "show", name)
        return cls(
            name=name,
            state="finished" if summary else "running" if owner else "stopped",
            owner=owner,
            step=next(held, start),
            steps=steps,
            success=summary.get("success_after") if summary else None,
            command=show if summary else continuing(store, name, record),
            experiment=record["experiment"],
            created_ms=record["created_ms"],
            tags=tags_of(store, name),
            changed=_changed(record),
            settings=flat(record["settings"]),
            edited=tuple(edited(record)),
        )

    @property
    def words(self) -> str:
        """The text of this run that `agentfly list --filter TEXT` searches for TEXT."""
        return " ".join(
            (self.name, self.experiment, self.state, *self.tags, *settled(self.changed))
        )

    def has(self, key: str, value: JSON) -> bool:
        """Whether the run has the value `value` for `key`.

        `key` is `tag`, `experiment`, `state`, `name` or the name of a setting.
        """
        return value in self.values(key)

    def values(self, key: str) -> Sequence[JSON]:
        """Return the values that `--filter KEY=VALUE` compares with VALUE.

        For the key `tag`, these are all tags of the run. For any other key, the list has one value,
        or is empty if the run does not have the key.
        """
        facts = {"experiment": self.experiment, "state": self.state, "name": self.name}
        single = {**self.settings, **facts}
        return self.tags if key == "tag" else [single[key]] if key in single else []


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A run with a damaged run.json: `Unreadable("demo", "/lab/runs/demo/run.json is damaged")`."""

    name: str
    fault: str

    @property
    def words(self) -> str:
        """The text of this run that `agentfly list --filter TEXT` searches for TEXT."""
        return f"{self.name} damaged"


ListedRun = Listed | Unreadable


def listed(store: Store) -> list[ListedRun]:
    """Return the runs of a store, sorted by name."""
    runs: list[ListedRun] = []
    for name in store.names("runs"):
        try:
            if (record := record_of(store, name)) is not None:
                runs.append(Listed.of(store, name, record))
        except Damaged as damage:
            runs.append(Unreadable(name, str(damage)))
        except Exception as error:  # another user's record may contain anything
            runs.append(Unreadable(name, f"{name}/run.json cannot be read: {fault(error)}"))
    return runs


def run_named(store: Store, reference: str) -> str:
    """Replace the name in a reference by the full name of a run: `quickstart@7` becomes
    `quickstart-1a2b3c4d@7`.

    The name in the reference can be:

    - the name of a run
    - the name of an experiment, which means the newest run of this experiment
    - the beginning of the name of one run

    An unknown name is returned unchanged. Raises ValueError if several run names begin with the
    name in the reference.
    """
    name, at, step = reference.removeprefix("run:").partition("@")
    names = store.names("runs")
    if not name or name in names:
        return f"{name}{at}{step}"
    of_experiment = [run for run in run_records(store) if run["experiment"] == name]
    if of_experiment:
        return f"{max(of_experiment, key=lambda run: run['created_ms'])['name']}{at}{step}"
    matches = [run for run in names if run.startswith(name)]
    if len(matches) > 1:
        raise ValueError(
            f"Several run names begin with {name}: {', '.join(matches)}. Use one of these names."
        )
    return f"{matches[0] if matches else name}{at}{step}"


def view(runs: list[ListedRun], store: Store) -> RenderableType:
    """Return two lines for each run: its state, and the command that continues or shows the run."""
    if not runs:
        here = loading.names()
        first = "quickstart" if "quickstart" in here or not here else here[0]
        return Text(f"{store.uri} has no runs yet. Start one: agentfly train {first}")
    width, differing, shown = max(len(run.name) for run in runs), differences(runs), []
    for run in runs:
        name = (f"{run.name:<{width}}  ", "bold")
        if isinstance(run, Unreadable):
            shown += [Text.assemble(name, ("damaged", "red")), Text(f"  {run.fault}", "dim")]
            continue
        success = "" if run.success is None else f"  held-out success {run.success:.1%}"
        owner = f"  {run.owner}" if run.owner else ""
        line = Text.assemble(name, (f"{run.state:<8}", STYLES[run.state]))
        line.append(f"  step {run.step}/{run.steps}{success}{owner}")
        for word in settled(differing[run.name]):
            line.append(f"  {clip(word, LONGEST_WORD)}", "cyan")
        if run.edited:
            line.append(f"  {clip(', '.join(run.edited), LONGEST_WORD)} changed", "yellow")
        for tag in run.tags:
            line.append(f"  #{tag}", "magenta")
        shown += [line, Text(f"  {run.command}", "dim")]
    return Group(*shown)


def differences(runs: Sequence[ListedRun]) -> dict[str, dict[str, JSON]]:
    """Return, for each undamaged run, the settings by which it differs from the other runs.

    A setting is returned if it differs between the runs, and if this run's value also differs from
    the experiment's file. The seed is returned whenever it differs between the runs.
    """
    readable = [run for run in runs if isinstance(run, Listed)]
    changed = sorted({"seed", *(key for run in readable for key in run.changed)})
    # as text, because a set cannot contain lists
    apart = [key for key in changed if len({str(run.settings.get(key)) for run in readable}) > 1]
    return {
        run.name: {key: run.settings.get(key) for key in apart if key in {*run.changed, "seed"}}
        for run in readable
    }


def settled(settings: Mapping[str, JSON]) -> list[str]:
    """Return settings as they are typed in a command: `["seed=1",
    "update.learning_rate=0.0003"]`.
    """
    return [f"{key}={typed(value)}" for key, value in settings.items()]


def typed(value: JSON) -> str:
    """Return the value of a setting as YAML on one line: `[1, 2]`."""
    return strict_yaml.dump(value, flow=True).strip()


def continuing(store: Store, name: str, record: RunRecord) -> str:
    """Return the command that continues a run.

    The command contains all settings that differ from the experiment's current file, and
    `--accept-code` if the code was edited since the run began.
    """
    experiment, changed = experiment_of(record)
    site = record["site"]["name"]
    where = [] if site == "local" else ["--site", site]
    accept = ["--accept-code"] if edited(record) else []
    words = ["agentfly", "train", experiment, *changed, "--run", name, *accept, *where]
    return in_store(store, *words)


def experiment_of(record: RunRecord) -> tuple[str, list[str]]:
    """Return the name of a run's experiment and the run's overrides, as typed in a command:
    `("quickstart", ["seed=1"])`.

    The overrides are the run's settings that differ from the experiment's current file. If this
    file is not in conf/, its path replaces the name of the experiment.
    """
    path = _file(record)
    in_conf = path is None or path.parent == loading.CONF
    return record["experiment"] if in_conf else str(path), settled(_changed(record))


def in_store(store: Store, *words: str) -> str:
    """Join the words of a command, and add `--store` unless the store is the default store."""
    default = Store.at(loading.site("local").store, store.root)
    return shlex.join([*words, *([] if store.uri == default.uri else ["--store", store.uri])])


def _file(record: RunRecord) -> Path | None:
    paths = (Path(o) for o in record["origin"].values() if o.endswith((".yaml", ".yml")))
    return next(paths, None)


def _changed(record: RunRecord) -> dict[str, JSON]:
    """Return the settings of a run that differ from the current file of its experiment.

    If the file cannot be read, the result has the overrides of the command that started the run.
    """
    settings, path = record["settings"], _file(record)
    try:
        # another user's run may name any file
        if path is None or not path.resolve().is_relative_to(Path.cwd()):
            raise ValueError(f"{path} is not a file in {Path.cwd()} or its folders.")
        now = _settings_of_file(str(path), path.stat().st_mtime_ns, os.getcwd())
    except (ValueError, OSError):
        keys = [key for key, origin in record["origin"].items() if origin == "override"]
    else:
        keys = [change.key for change in loading.differences(now, settings)]

    values = flat(settings)
    absent = [section for section, value in values.items() if value is None]
    whole = set()
    for key in keys:
        section = next((one for one in absent if key.startswith(f"{one}.")), key)
        # an import path also contains dots
        whole.add(section.partition(".")[0] if ":" in section else section)

    return {key: values.get(key, settings.get(key)) for key in sorted(whole)}


# time and folder are arguments only to be keys of the cache: an edited file is read again
@lru_cache(maxsize=64)
def _settings_of_file(path: str, mtime_ns: int, folder: str) -> Mapping[str, JSON]:
    """Read the current settings in the file of an experiment.

    The result is cached, because many runs have the same file.
    """
    now: dict[str, JSON] = loading.read(path).settings.model_dump(mode="json")
    return now


def only(runs: Sequence[ListedRun], wanted: Sequence[str]) -> list[ListedRun]:
    """Return the runs that meet all conditions in `wanted`.

    A condition is KEY=VALUE, such as `state=stopped` or `update.learning_rate=3e-4`. A condition
    without "=" is a text that the attribute `words` of the run must contain. Raises ValueError
    if there are readable runs, but none of them has the value for the key. The name of a state,
    such as "stopped", is valid even if no run has this state.
    """
    kept, readable = list(runs), [run for run in runs if isinstance(run, Listed)]
    for condition in wanted:
        if "=" in condition:
            key, _, text = condition.partition("=")
            # fields are text: the tag 1.10 is not the number 1.1
            value = text if key in FIELDS else override(condition)[1]
            _require_existing(readable, key, value)
            kept = [run for run in kept if isinstance(run, Listed) and run.has(key, value)]
        else:
            kept = [run for run in kept if condition.casefold() in run.words.casefold()]
    return kept


def _require_existing(runs: Sequence[Listed], key: str, value: JSON) -> None:
    if not runs or (key == "state" and value in STYLES) or any(run.has(key, value) for run in runs):
        return
    if values := {typed(value) for run in runs for value in run.values(key)}:
        hint = did_you_mean(typed(value), sorted(values))
        raise ValueError(f"--filter: no run has {key}={typed(value)}.{hint}")
    keys = sorted({*FIELDS, *(key for run in runs for key in run.settings)})
    raise ValueError(f"--filter: no run has the key {key!r}.{did_you_mean(key, keys)}")


def ordered(runs: Sequence[ListedRun], by: Sorting) -> list[ListedRun]:
    """Sort runs by name, by time (the newest first), by success or by step (the highest first).

    In the order by name, damaged runs are sorted like other runs. In all other orders, they come
    last.
    """

    def rank(run: ListedRun) -> tuple[float, str]:
        if isinstance(run, Unreadable):
            return (0.0 if by == "name" else math.inf), run.name
        figures = {"time": run.created_ms, "success": run.success, "step": run.step, "name": 0}
        figure = figures[by]
        return (1.0 if figure is None else -figure), run.name

    return sorted(runs, key=rank)


def as_json(runs: Sequence[ListedRun]) -> dict[str, JSON]:
    """Return runs as JSON. The field `differs` of a run contains the settings by which it differs
    from the other runs.
    """
    differing = differences(runs)
    rows: list[JSON] = []
    for run in runs:
        if isinstance(run, Unreadable):
            rows.append({"name": run.name, "state": "damaged", "fault": run.fault})
            continue
        fields = {name: value for name, value in asdict(run).items() if name != "settings"}
        rows.append({**fields, "owner": run.owner or None, "differs": differing[run.name]})
    return {"runs": rows}
