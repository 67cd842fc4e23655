"""Digests of the user's own modules, and changes of these modules during a run.

The settings of an experiment name these modules. If the digest of a module changes, the stages that
run the module get new cache keys, and a new run gets another name.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from agentfly_core.config.experiment import Settings
from agentfly_core.config.parts import PROGRAM
from agentfly_core.config.reference import is_scripted
from agentfly_core.config.tasks import datasets
from agentfly_core.experiment.own_modules import parts_of, sources, spec_of, top_of
from agentfly_core.experiment.run_layout import RunLayout, record_of
from agentfly_core.records.run_record import AcceptedCode, RunRecord
from agentfly_core.store.lease import only_writer
from agentfly_core.store.store import Store
from agentfly_core.system.files import unchanged_sha256
from agentfly_core.system.formats.file_shapes import CodeRecord
from agentfly_core.system.formats.hashing import digest
from agentfly_core.system.formats.json_value import as_json
from agentfly_core.system.module_search import importable_here
from agentfly_core.system.revision import revision

if TYPE_CHECKING:
    from agentfly_core.authoring.reward import Reward
    from agentfly_core.experiment.task import Task

Code = Mapping[str, Mapping[str, str]]
"""For each stage, the digests of the user's modules that the stage runs, as in `Settings.code`:
`{"rollout": {"my_tools": "9f2c51aa03be7d10"}}`."""
PROGRAM_MODULE = PROGRAM.partition(":")[0]
COUNTED = ("prepare", "demonstrate", "rollout", "score", "memory", "update")
"""The stages for which `Settings.code` may have digests of the user's own modules. Cache keys cover
these digests.
"""
BEFORE_STEPS = ("prepare", "demonstrate")
"""Stages that a run does not repeat after its first step."""


def code_of(settings: Settings, tasks: Mapping[str, Task]) -> dict[str, dict[str, str]]:
    """Return the current digests of the user's own modules for each stage:
    `{"rollout": {"my_tools": "9f2c51aa03be7d10"}}`.

    Each digest also covers the files in the setting `code_files`. Raises ValueError if the source
    file of a module, or one of the `code_files`, does not exist.
    """
    if missing := [name for name in settings.code_files if not Path(name).is_file()]:
        raise ValueError(f"code_files: {missing[0]!r} is missing in {Path.cwd()}.")
    own = [task.settings for task in tasks.values()]
    tools = [tool.use for one in own for tool in one.tools]
    kinds = [path for one in own for path in one.environments]
    played = [settings.template.use, settings.agent.use, *tools, *kinds]
    # rewards with environments run in the rollout
    during = [path for path, reward in _rewards(tasks) if reward.needs]
    shown = (settings.warm_start, *(task.warm_start for task in settings.tasks.values()))
    demonstrated = [warm_start.demonstrations for warm_start in shown if warm_start]
    made = (settings.data, *settings.further_datasets.values())
    paths = {
        "prepare": [path for data in made for path in datasets(data.model_dump())],
        "demonstrate": [*played, *filter(is_scripted, demonstrated)],
        "rollout": [*played, *during],
        "score": [path for path, reward in _rewards(tasks) if not reward.needs],
        "memory": [settings.agent.remembers] if settings.agent.remembers else [],
        "update": [settings.algorithm.use],
    }
    return _digested(paths, _digests(settings.code_files))


def _digested(
    paths: Mapping[str, Sequence[str]], data: Mapping[str, str]
) -> dict[str, dict[str, str]]:
    """Return the digests of the user's own modules for each stage.

    `paths` has the import paths that each stage uses. `data` has the digests of the files in the
    setting `code_files`. Each module's digest also covers `data`.
    """
    code = {}
    for stage, used in paths.items():
        modules = sorted({path.partition(":")[0] for path in used})
        # the code of an agent that is a program is in `code_files`, not in a module
        if own := {n: _module(n, data) for n in modules if sources(n) or n == PROGRAM_MODULE}:
            code[stage] = own
    return code


def _module(name: str, data: Mapping[str, str]) -> str:
    return digest({**sources(name), **data})[:16]


def _rewards(tasks: Mapping[str, Task]) -> Iterator[tuple[str, Reward]]:
    for task in tasks.values():
        for (name, part), reward in zip(task.settings.rewards.items(), task.rewards, strict=True):
            yield part.use or name, reward


def modules_of(code: Code) -> dict[str, str]:
    """Return the digest of each of the user's own modules: `{"my_tools": "9f2c51aa03be7d10"}`."""
    return {module: own for stage in code.values() for module, own in stage.items()}


def recorded(code: Code, data_files: Iterable[str]) -> CodeRecord:
    """Return the code record for run.json: the digests of the code, and the state of the working
    directory's git repository.
    """
    modules = modules_of(code)
    parts = parts_of(modules, _digests(data_files))
    return {"modules": modules, "parts": parts, "repository": revision(Path.cwd())}


def extended(before: CodeRecord, code: Code, data_files: Iterable[str]) -> CodeRecord:
    """Return the code record of a continued run: `before`, updated with the digests of `code`.

    The state of the git repository is not updated.
    """
    now = recorded(code, data_files)
    return {
        "modules": {**before["modules"], **now["modules"]},
        "parts": {**before["parts"], **now["parts"]},
        "repository": before["repository"],
    }


def changed(record: RunRecord, code: Code) -> list[str]:
    """Return the names of the modules that changed since the run began: `["my_shop"]`.

    The digests in `code` are compared with the digests in run.json. Modules that are missing in
    `code` or in run.json are skipped.
    """
    before, now = record["code"]["modules"], modules_of(code)
    # a module that the settings no longer name is a changed setting, which is refused elsewhere
    return sorted(name for name in before if now.get(name, before[name]) != before[name])


def edited(record: RunRecord) -> list[str]:
    """Return the functions and classes that changed in the working directory since the run began:
    `["my_shop.price"]`.

    A module's name, such as `my_shop`, means that lines outside of functions and classes changed.
    Modules that do not exist on this machine are skipped.
    """
    importable_here()
    data = _digests(filter(os.path.isfile, record["settings"].get("code_files", [])))
    modules = [
        name
        for name, own in record["code"]["modules"].items()
        if spec_of(top_of(name)) and _module(name, data) != own
    ]
    before, now = record["code"]["parts"], parts_of(modules, data)
    tops = {top_of(name) for name in now}
    names = {name for name in {*before, *now} if top_of(name) in tops}
    return sorted(name for name in names if before.get(name) != now.get(name))


def _digests(data_files: Iterable[str]) -> dict[str, str]:
    return {name: unchanged_sha256(Path(name)) for name in data_files}


def continued(code: Code, record: RunRecord) -> dict[str, Mapping[str, str]]:
    """Return the code digests of each stage for a continued run.

    The stages `prepare` and `demonstrate` keep the digests in run.json, because a run does not
    repeat these stages after its first step. All other stages get the digests in `code`.
    """
    before: Code = record["settings"]["code"]
    kept = {stage: before[stage] for stage in BEFORE_STEPS if stage in before}
    return {**code, **{stage: {**code.get(stage, {}), **kept[stage]} for stage in kept}}


def refuse_other_code(record: RunRecord, code: Code) -> None:
    """Raise ValueError if the user's own code changed since the run began.

    The message names the changed functions.
    """
    if modules := changed(record, code):
        names = ", ".join(edited(record) or modules)
        raise ValueError(
            f"The code of {names} changed after the run {record['name']!r} was started. Restore "
            "the old code, or start another run without --run. With --accept-code, an unfinished "
            "run continues with the new code (recorded in run.json)."
        )


def accept_code(store: Store, name: str, code: Code) -> None:
    """Allow a run to continue with changed code, and record the change in run.json.

    Finished steps are kept. Raises Locked while another process writes the run.
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
            "before": record["settings"]["code"],
        }
        # until the start of the run is stored, the dataset and demonstrations may be made again
        after = continued(code, record) if store.read_json(layout.start) else code
        record["settings"] = {**record["settings"], "code": as_json(after)}
        record["code"] = recorded(code, record["settings"].get("code_files", []))
        record["accepted_code"] = [*record.get("accepted_code", []), entry]
        store.write_json(layout.record, as_json(record))
