"""An author's own code: digests of the modules that an experiment names, and changes of a run's.

A changed digest changes the keys of the stages that run the module, and the name of the run.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import sysconfig
import time
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.machinery import ModuleSpec
from pathlib import Path

from pydantic import TypeAdapter

from agentfly_core.authoring.reward import Reward
from agentfly_core.config.experiment import Settings
from agentfly_core.config.reference import run_step
from agentfly_core.config.tasks import datasets
from agentfly_core.experiment.run_layout import RunLayout, record_of
from agentfly_core.experiment.task import Task
from agentfly_core.records.run_record import AcceptedCode, RunRecord
from agentfly_core.store.lease import only_writer
from agentfly_core.store.store import Store
from agentfly_core.system.files import sha256
from agentfly_core.system.formats.file_shapes import CodeRecord
from agentfly_core.system.formats.hashing import digest
from agentfly_core.system.formats.json_value import as_json
from agentfly_core.system.module_search import INSTALLED, OURS
from agentfly_core.system.revision import revision

Code = Mapping[str, Mapping[str, str]]
"""By stage, 16 hex digits for each of the author's modules, as in `Settings.code`:
`{"rollout": {"my_tools": "9f2c51aa03be7d10"}}`."""
CODE = TypeAdapter(dict[str, dict[str, str]])
COUNTED = ("prepare", "demonstrate", "rollout", "score", "update")
"""Stages whose keys contain an author's code."""
BEFORE_STEPS = ("prepare", "demonstrate")
"""Stages whose outputs a run keeps after its first step."""
IMPORT = re.compile(rb"^[ \t]*(?:from[ \t]+(\w+)|import[ \t]+([\w., \t]+))", re.MULTILINE)
LIBRARY = Path(sysconfig.get_path("stdlib")).resolve()
SUFFIXES = (".py", ".so", ".pyd")


def code_of(settings: Settings, tasks: Mapping[str, Task]) -> dict[str, dict[str, str]]:
    """Return the digests of the author's code at hand. Each module depends on all `code_files`.

    Raises ValueError for a module without a file, and for a file that does not exist.
    """
    if missing := [name for name in settings.code_files if not Path(name).is_file()]:
        raise ValueError(f"code_files: {missing[0]!r} is missing in {Path.cwd()}.")
    data = {name: sha256(Path(name)) for name in settings.code_files}
    code = {}
    for stage, paths in _paths(settings, tasks).items():
        modules = {path.partition(":")[0] for path in paths}
        files = {module: sources(module) for module in sorted(modules)}
        if own := {name: digest({**each, **data})[:16] for name, each in files.items() if each}:
            code[stage] = own
    return code


def _paths(settings: Settings, tasks: Mapping[str, Task]) -> dict[str, list[str]]:
    """The import paths that affect each stage."""
    played = [settings.template.use, settings.agent.use]
    for task in tasks.values():
        played += [*(tool.use for tool in task.settings.tools), *task.settings.environments]
    # rewards with environments run in the rollout
    during = [path for path, reward in _rewards(tasks) if reward.needs]
    further = (*settings.evaluate.datasets.values(), *settings.promotion.datasets.values())
    shown = (settings.warm_start, *(task.warm_start for task in settings.tasks.values()))
    demonstrated = [warm_start.demonstrations for warm_start in shown if warm_start]
    return {
        "prepare": [p for data in (settings.data, *further) for p in datasets(data.model_dump())],
        "demonstrate": [*played, *(path for path in demonstrated if run_step(path) is None)],
        "rollout": [*played, *during],
        "score": [path for path, reward in _rewards(tasks) if not reward.needs],
        "update": [settings.algorithm.use],
    }


def _rewards(tasks: Mapping[str, Task]) -> Iterator[tuple[str, Reward]]:
    for task in tasks.values():
        for (name, part), reward in zip(task.settings.rewards.items(), task.rewards, strict=True):
            yield part.use or name, reward


def sources(module: str) -> dict[str, str]:
    """Return the sha256 of each file of a module's top-level package, and of its imports that are
    not installed. Empty for AgentFly's modules and the standard library.
    """
    top = module.partition(".")[0]
    if top in OURS or top in sys.stdlib_module_names:
        return {}
    if (spec := _spec(top)) is None:
        raise ValueError(
            f"{module} has no source file. Move it to a module such as {top}.py, for example from "
            "a notebook."
        )
    files, done, waiting = dict[str, str](), set[str](), {top}
    while waiting := waiting - done:
        done.add(name := waiting.pop())
        if name == top or ((spec := _spec(name)) and not _is_installed(spec)):
            of_package, imports = _package(name)
            files |= of_package
            waiting |= imports
    return files


def _spec(top: str) -> ModuleSpec | None:
    """The import spec of a top-level module, or None without a file."""
    try:
        spec = importlib.util.find_spec(top)
    except ValueError:  # the main module of a notebook
        return None
    return spec if spec and (spec.has_location or spec.submodule_search_locations) else None


def _is_installed(spec: ModuleSpec) -> bool:
    path = _roots(spec)[0].resolve()
    return not {*INSTALLED}.isdisjoint(path.parts) or path.is_relative_to(LIBRARY)


def _roots(spec: ModuleSpec) -> list[Path]:
    """The folders of a package, or the file of a module."""
    return [Path(root) for root in spec.submodule_search_locations or [str(spec.origin)]]


@cache  # a process runs the code that it imported first
def _package(name: str) -> tuple[dict[str, str], set[str]]:
    """The files of a top-level module or package, and the top-level names that they import."""
    spec = _spec(name)
    assert spec, f"{name} has no file"
    files, imports = dict[str, str](), set[str]()
    for root in _roots(spec):
        inside = sorted(root.rglob("*")) if root.is_dir() else [root]
        for path in (path for path in inside if path.suffix in SUFFIXES and path.is_file()):
            files[path.relative_to(root.parent).as_posix()] = sha256(path)
            imports.update(_imports(path) if path.suffix == ".py" else ())
    return files, imports


def _imports(path: Path) -> set[str]:
    """The top-level names that a source imports. Text may look like an import, so a name counts
    only if a module of this name exists.
    """
    tops = set[str]()
    for package, modules in IMPORT.findall(path.read_bytes()):
        for name in (package, *modules.split(b",")):
            tops.update(first.decode() for first in re.findall(rb"^\s*(\w+)", name))
    return {top for top in tops if top not in OURS and top not in sys.stdlib_module_names}


def modules_of(code: Code) -> dict[str, str]:
    """The digest of each of the author's modules: `{"my_tools": "9f2c51aa03be7d10"}`."""
    return {module: own for stage in code.values() for module, own in stage.items()}


def recorded(code: Code) -> CodeRecord:
    """Code as run.json has it, with the revision of the working directory."""
    return {"modules": modules_of(code), "repository": revision(Path.cwd())}


def changed(record: RunRecord, code: Code) -> list[str]:
    """The modules of a run and of `code` that differ: `["my_shop"]`."""
    before, now = record["code"]["modules"], modules_of(code)
    return sorted(name for name in before if now.get(name, before[name]) != before[name])


def continued(code: Code, record: RunRecord) -> dict[str, Mapping[str, str]]:
    """The code of a run that continues under `code`, or of a fork of it: its dataset and its
    demonstrations are kept.
    """
    before = CODE.validate_python(record["settings"]["code"])
    kept = {stage: before[stage] for stage in BEFORE_STEPS if stage in before}
    return {**code, **{stage: {**code.get(stage, {}), **kept[stage]} for stage in kept}}


def refuse_other_code(record: RunRecord, code: Code) -> None:
    """Raise ValueError with the changed modules for a run with other code of its author."""
    if modules := changed(record, code):
        raise ValueError(
            f"The run {record['name']!r} works under other code of {', '.join(modules)}. Put it "
            "back, or start another run without --run. A run with steps left continues under this "
            "code with --accept-code (recorded in run.json)."
        )


def accept_code(store: Store, name: str, code: Code) -> None:
    """Let a run continue under this code, with an entry in run.json; finished steps stay. Raises
    Locked while a process writes it.
    """
    layout = RunLayout(name)
    with only_writer(store, layout.uri):
        record = record_of(store, name)
        if record is None or not (modules := changed(record, code)):
            return
        done = [step for step in layout.steps(store) if store.holds(layout.step(step).policy)]
        entry: AcceptedCode = {
            "step": max(done, default=0),
            "time_ms": int(time.time() * 1000),
            "modules": modules,
            "before": CODE.validate_python(record["settings"]["code"]),
        }
        after = continued(code, record) if store.read_json(layout.start) else code
        record["settings"] = {**record["settings"], "code": as_json(after)}
        record["code"] = recorded(code)
        record["accepted_code"] = [*record.get("accepted_code", []), entry]
        store.write_json(layout.record, as_json(record))
