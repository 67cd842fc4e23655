"""Read the settings of experiments and sites. Files replace defaults, and overrides replace values
in files.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from agentfly_core.config.credentials import refuse_secrets
from agentfly_core.config.episodes import SPLITS
from agentfly_core.config.experiment import Settings
from agentfly_core.config.health_signs import SIGNS
from agentfly_core.config.import_path import at, load, with_defaults
from agentfly_core.config.mismatch import UNSHOWN, message_of, place, settings_like, with_value
from agentfly_core.config.parts import PoolSettings, RewardPart
from agentfly_core.config.section import Section, at_keys, resumable
from agentfly_core.config.site import Site
from agentfly_core.system.formats import strict_json, strict_yaml
from agentfly_core.system.formats.json_value import JSON, flat
from agentfly_core.system.formats.text import did_you_mean, nearest
from agentfly_core.system.service import OWNER, RUN, SANDBOX

CONF = Path("conf")
PARTS: dict[str, JSON] = {
    name: Settings.model_fields[name].default.model_dump() for name in ("algorithm", "template")
}
PARTS["health"] = {name: sign.model_dump() for name, sign in SIGNS.items() if sign}
GIVEN: Mapping[str, Sequence[str]] = {
    "algorithm": (),
    "template": ("tokenizer",),
    "data": ("seed", *SPLITS),
}
"""Sections that name a class or function, and are completed with its default arguments.

Each section is mapped to the names of the arguments that the program itself passes to the class or
function. All other arguments come from the settings in the section (see `Part.settings`).
"""
TASKS = "tasks"
"""The source, in `ExperimentFile.origin`, of values that are copied from the setting `tasks`."""
FROM_TASKS = ("data.", "warm_start.demonstrations", "warm_start.settings")
S = TypeVar("S", bound=Section)


@dataclass(frozen=True, slots=True)
class ExperimentFile:
    """The name and the settings of an experiment: `ExperimentFile("quickstart", Settings(...),
    {"update.learning_rate": "conf/quickstart.yaml", "seed": "default"})`.

    `origin` maps each setting to the file or other source of its value.
    """

    name: str
    settings: Settings
    origin: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Difference:
    """A setting with an old and a new value: `Difference("seed", 0, 1, resumable=False)`.

    `resumable` is whether the setting may change when a run continues.
    """

    key: str
    old: JSON
    new: JSON
    resumable: bool

    def __str__(self) -> str:
        return f"{self.key}: {self.old!r} -> {self.new!r}"


def names(folder: Path = CONF) -> list[str]:
    """Return the names of the experiments in a folder. Hidden files, such as Emacs' locks of edited
    files, are skipped.
    """
    return sorted(path.stem for path in folder.glob("[!.]*.yaml"))


def flows() -> list[tuple[str, str]]:
    """Return (experiment, flow) for each flow in the setting `flows` of each experiment in conf/:
    `[("tptu", "evaluate_plans")]`.

    Files that cannot be read are skipped. The commands that use such a file print the reason.
    """
    return [(name, flow) for name in names(CONF) for flow in _flows_of(name) or ()]


def has_lost(experiment: str, flow: str) -> bool:
    """Whether `flow` is missing in the setting `flows` of an experiment in conf/.

    False if the file of the experiment cannot be read.
    """
    named = _flows_of(experiment)
    return named is not None and flow not in named


def _flows_of(experiment: str) -> tuple[str, ...] | None:
    """Return the names of the flows in the setting `flows` of an experiment.

    The result is empty if the experiment's file is missing, and None if the file cannot be read.
    """
    path = CONF / f"{experiment}.yaml"
    try:
        return _flows(path, path.stat().st_mtime_ns)
    except FileNotFoundError:  # an editor may be replacing it
        return ()
    except OSError:
        return None


@cache  # because `agentfly up` reads all files every few seconds
def _flows(path: Path, changed_ns: int) -> tuple[str, ...] | None:
    try:
        named = strict_yaml.settings(path).get("flows")
    except ValueError:
        return None
    return tuple(named) if isinstance(named, dict) else ()


def read(experiment: str, overrides: Sequence[str] = ()) -> ExperimentFile:
    """Read an experiment. `experiment` is its name in `./conf`, or the path of its file.

    An override replaces a whole value: after `rewards={"a:b": 1}`, the experiment has only one
    reward. Raises ValueError if settings are wrong. The message lists all wrong settings.
    """
    path = _path(experiment)
    written = strict_yaml.settings(path)
    refuse_secrets(written, str(path))
    changes = [override(text) for text in overrides]
    values = _merge(PARTS, {key: _in_full(key, value) for key, value in written.items()})
    for key, value in changes:
        # checked before the merge, because an error must name the override as its source
        refuse_secrets(_replaced({}, _keys(key), value), "an override")
        values = _replaced(values, _keys(key), _in_full(key, value))
    # wrong digests would give wrong cache keys
    if "code" in values:
        raise ValueError(
            "The key `code` is computed and cannot be set. In `code_files`, list the data files "
            "that your modules read."
        )
    settings = _completed(_validate(Settings, values, ", ".join([str(path), *overrides])))
    sources = {"override": [key for key, _ in changes], str(path): [*flat(written)]}
    origin = {}
    for key in flat(settings.model_dump(mode="json")):
        # the first source that sets this key, or a section that contains this key
        sections = _sections_of(key)
        saying = (name for name, keys in sources.items() if not sections.isdisjoint(keys))
        derived = TASKS if settings.tasks and key.startswith(FROM_TASKS) else None
        origin[key] = next(saying, derived or "default")
    return ExperimentFile(path.stem, settings, origin)


def site(name: str, store: str = "") -> Site:
    """Read the settings of a site (the machine that runs experiments).

    The settings come from `conf/site/NAME.yaml`, environment variables `AGENTFLY_<KEY>`, and
    `store` (the option `--store`). If several sources set the same key, the source
    named last in this list counts. Raises ValueError if a setting or a variable is wrong.
    """
    layers = _layers(name, store)
    values = {key: value for layer in layers.values() for key, value in layer.items()}
    return _validate(Site, values, ", ".join(source for source, layer in layers.items() if layer))


def site_origin(name: str, store: str = "") -> dict[str, str]:
    """Return where the value of each setting of a site comes from: `{"ranks": "AGENTFLY_RANKS",
    "device": "default"}`.
    """
    last = {key: source for source, layer in _layers(name, store).items() for key in layer}
    return {key: last.get(key, "default") for key in Site.model_fields}


def differences(old: Mapping[str, JSON], new: Mapping[str, JSON]) -> list[Difference]:
    """Return the settings with values that differ between `old` and `new`.

    `old` and `new` are nested mappings with the settings of an experiment. Digests of code are
    ignored.
    """
    before, after = ({**flat(tree), "code": None} for tree in (old, new))
    free = set(resumable(Settings))
    return [
        Difference(key, before.get(key), after.get(key), not free.isdisjoint(_sections_of(key)))
        for key in sorted({*before, *after})
        if before.get(key) != after.get(key) and not key.startswith("code.")
    ]


def settings() -> list[str]:
    """Return the dotted keys of all settings that have a default: `["seed",
    "update.learning_rate", ...]`.
    """
    return [key for key in defaults() if not key.startswith("site.")]


def defaults() -> dict[str, JSON]:
    """Return the default of each setting of an experiment and of a site, by dotted key:
    `{"seed": 0, ..., "site.ranks": 1}`.
    """
    given: dict[str, JSON] = {
        "model": "",
        "data": {"use": "", "train": 1, "test": 1},
        "rewards": {"": 0},
        "steps": 1,
    }
    unsaid = flat(Settings.model_validate(given).model_dump(mode="json"))
    free = {key: value for key, value in unsaid.items() if key not in flat(given)}
    return free | flat(Site().model_dump(), "site.")


def _completed(settings: Settings) -> Settings:
    """Return `settings` with the default arguments of all classes and functions named in them.

    A run stores these complete settings.
    """
    with at("algorithm.use"):
        refills = getattr(load(settings.algorithm.use), "refills", None)
    # unset values are left out, because `model_fields_set` later separates a user's values from
    # defaults
    full = settings.model_dump(mode="json", exclude_unset=True)
    parts = {name: (getattr(settings, name), full[name], GIVEN[name]) for name in GIVEN}
    if refills is None:
        del parts["algorithm"]  # an invalid algorithm is reported later
    for name, task in settings.tasks.items():
        parts[f"tasks.{name}.data"] = task.data, full["tasks"][name]["data"], GIVEN["data"]
    for key, (part, section, given) in parts.items():
        with at(key):
            section |= with_defaults(load(part.use), part.settings, given)
    for own in settings.own_settings():
        if own.settings:
            section = at_keys(full, own.keys)
            assert isinstance(section, dict), f"{own.keys} holds settings"
            section |= own.completed()
    full["rollout"] = {"refills": refills or 0, **full.get("rollout", {})}
    return Settings.model_validate(full)


def _layers(name: str, store: str) -> Mapping[str, Mapping[str, JSON]]:
    """Return the settings of a site by source: `{"AGENTFLY_RANKS": {"ranks": "2"}, ...}`.

    If several sources set the same key, the last of these sources counts.
    Raises ValueError if the site or an environment variable `AGENTFLY_...` is unknown.
    """
    path = CONF / "site" / f"{name}.yaml"
    if not os.path.isfile(path) and name != "local":
        hint = did_you_mean(name, names(path.parent))
        raise ValueError(f"The site {name!r} does not exist ({path}).{hint}")
    written = strict_yaml.settings(path) if os.path.isfile(path) else {}
    fields = {f"AGENTFLY_{key.upper()}": key for key in Site.model_fields if key != "name"}
    # these variables are set for child processes, not by users
    ours = [name for name in os.environ if name.startswith("AGENTFLY_")]
    given = [name for name in ours if name not in (RUN, OWNER, SANDBOX)]
    if unknown := [name for name in given if name not in fields]:
        hint = did_you_mean(unknown[0], list(fields))
        raise ValueError(f"No setting belongs to the environment variable {unknown[0]}.{hint}")
    variables = {name: {fields[name]: os.environ[name]} for name in given}
    options = {"--site": {"name": name}, "--store": {"store": store} if store else {}}
    return {str(path): written, **variables, **options}


def _path(experiment: str) -> Path:
    is_file = experiment.endswith((".yaml", ".yml"))
    path = Path(experiment) if is_file else CONF / f"{experiment}.yaml"
    if not os.path.isfile(path):
        beside = [one.name for one in path.parent.glob("*.y*ml")] if is_file else []
        start = (
            " Run the command in the folder of your project, or create a project: agentfly init "
            "NAME"
        )
        others = did_you_mean(path.stem, names()) if names() else start
        hint = nearest(path.name, beside) or others
        raise ValueError(f"The experiment {experiment!r} does not exist ({path.absolute()}).{hint}")
    return path


def override(text: str) -> tuple[str, JSON]:
    """Split an override into key and value: `rollout.problems=8` gives `("rollout.problems", 8)`.

    Raises ValueError if the override is not KEY=VALUE, or if the value is invalid YAML.
    """
    key, equals, value = text.partition("=")
    if not equals or not all(_keys(key)):
        begin = re.split(r"[\s:]", key)[0]  # the value is not shown, because it may be a secret
        raise ValueError(
            f"Got the override {begin!r}, expected key=value, for example "
            "update.learning_rate=3e-4."
        )
    try:
        return key, strict_json.parse(value)  # JSON first, because programs write it
    except ValueError:
        return key, strict_yaml.parse(value, f"The value of the override {key!r}")


def _keys(key: str) -> list[str]:
    """Split a dotted key. An import path is not split: `rewards.my.rewards:cites.weight` gives
    `["rewards", "my.rewards:cites", "weight"]`.
    """
    before, _, name = key.partition(":")
    outer = 3 if key.startswith("tasks.") else 1  # tasks.NAME.rewards
    *sections, module = before.split(".", outer)
    if not name or len(sections) < outer:
        return key.split(".")
    first, *inner = name.split(".")
    return [*sections, f"{module}:{first}", *inner]


def _sections_of(key: str) -> set[str]:
    """Return a dotted key and its prefixes: `{"update", "update.epochs"}` for `update.epochs`."""
    return {key[: end.start()] for end in re.finditer(r"\.|$", key)}


def _merge(base: Mapping[str, JSON], change: Mapping[str, JSON]) -> dict[str, JSON]:
    merged = dict(base)
    for key, value in change.items():
        old = merged.get(key)
        merged[key] = (
            _merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
        )
    return merged


def _in_full(key: str, value: JSON) -> JSON:
    """Return `{"weights": False}` for the setting `update: none`. Return other values unchanged."""
    return {"weights": False} if (key, value) == ("update", "none") else value


def _replaced(
    tree: JSON, path: Sequence[str], value: JSON, above: Sequence[str] = ()
) -> dict[str, JSON]:
    """Return `tree` with the value at `path` replaced. The keys in `above` lead to `tree`."""
    here = tree if isinstance(tree, Mapping) else _opened(tree, above)
    first, *rest = path
    inner = _replaced(here.get(first), rest, value, (*above, first)) if rest else value
    return {**here, first: inner}


def _opened(short: JSON, keys: Sequence[str]) -> dict[str, JSON]:
    """Convert the short form of a section, i.e. the value of the main key alone, to a dict.

    For example, the section of a reward may be the number 2.5, which means `{"weight": 2.5}`. For a
    missing section, or a section without a short form, the result is an empty dict. `keys` are
    the keys that lead to the section.
    """
    numbers = {"rewards": RewardPart.SHORT, "environments": PoolSettings.SHORT}
    key = "use" if isinstance(short, str) else numbers.get("".join(keys[-2:-1]))
    return {key: short} if key and short is not None else {}


def _validate(kind: type[S], values: Mapping[str, JSON], source: str) -> S:
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        lines = "\n".join(f"  {line}" for line in _explain(kind, error))
        what = "site" if kind is Site else "experiment"
        raise ValueError(f"{source} is not a valid {what} configuration:\n{lines}") from None


def _explain(kind: type[Section], error: ValidationError) -> Iterator[str]:
    for fault in error.errors():
        where = place(fault["loc"])
        if fault["type"] == "extra_forbidden":
            *path, key = map(str, fault["loc"])
            hint = did_you_mean(key, list(_section(kind, path).model_fields))
            typed = next(iter(flat({where: fault["input"]})), where)  # verl has longer names
            if kind is Settings and (likely := settings_like(typed, settings())):
                hint = f" Did you mean {likely[0]!r}?"
            yield f"{where}: there is no such key.{hint}"
        elif fault["type"] == "missing":
            yield f"{where}: this key is required"
        elif fault["type"] == UNSHOWN:
            yield f"{where}: {message_of(fault)}"
        elif not where:
            yield message_of(fault)
        elif fault["type"] != "default_factory_not_called":  # this fault follows from another one
            yield f"{where}: {with_value(fault)}"


def _section(kind: type[BaseModel], path: Sequence[str]) -> type[BaseModel]:
    for name in path:
        if name in kind.model_fields:  # False for an import path
            kind = next(_sections(kind.model_fields[name].annotation), kind)
    return kind


def _sections(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the pydantic models in an annotation: `Sign` for `dict[str, Sign | None]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for option in getattr(annotation, "__args__", ()):
        yield from _sections(option)
