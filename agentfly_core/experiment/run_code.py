"""A run's code: compared with the code at hand, and replaced with `--accept-code`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from operator import itemgetter
from pathlib import Path

from pydantic import TypeAdapter

from agentfly_core.config.experiment import Fork
from agentfly_core.config.parts import Data
from agentfly_core.config.tasks import datasets
from agentfly_core.experiment.run_layout import RunLayout, record_of, run_records
from agentfly_core.experiment.user_code import Code
from agentfly_core.records.run_record import AcceptedCode, RunRecord
from agentfly_core.store.lease import only_writer
from agentfly_core.store.store import Store
from agentfly_core.system.formats.checksummed_json import Damaged
from agentfly_core.system.formats.file_shapes import CodeRecord
from agentfly_core.system.formats.json_value import JSON, as_json
from agentfly_core.system.revision import revision

BEFORE_STEPS = ("prepare", "demonstrate")
"""Stages whose outputs a run keeps after its first step."""
CodeDigests = Mapping[str, Mapping[str, str]]
"""Digests by stage and module, see `Settings.code`."""
DIGESTS = TypeAdapter(dict[str, dict[str, str]])


def recorded(code: Code) -> CodeRecord:
    """Code as run.json has it, with the revision of the working directory."""
    return {"files": code, "repository": revision(Path.cwd())}


def digests(record: RunRecord) -> dict[str, dict[str, str]]:
    """The digests of a run's current code, see `Settings.code`."""
    return DIGESTS.validate_python(record["settings"]["code"])


def under(own: CodeDigests, record: RunRecord) -> dict[str, Mapping[str, str]]:
    """Merge the code digests of a run with `own`, the current ones, for further datasets."""
    code: dict[str, Mapping[str, str]] = {**digests(record)}
    if made := {**own.get("prepare", {}), **code.get("prepare", {})}:
        code["prepare"] = made
    return code


def of_fork(store: Store, own: CodeDigests, fork: Fork | None, data: Data) -> CodeDigests:
    """The digests of a fork's code: the code of its data is the origin's. `own` without a fork."""
    origin = None
    with suppress(Damaged):  # a fork that has begun continues without it
        origin = record_of(store, fork.run) if fork else None
    if origin is None:
        return own
    made_by = {path.partition(":")[0] for path in datasets(data.model_dump())}
    ours, theirs = own.get("prepare", {}), digests(origin).get("prepare", {})
    prepare = {module: ours[module] for module in ours if module not in made_by}
    prepare |= {module: theirs[module] for module in theirs if module in made_by}
    others = {stage: own[stage] for stage in own if stage != "prepare"}
    return {**others, **({"prepare": prepare} if prepare else {})}


def changed(record: RunRecord, code: Code) -> list[str]:
    """The files that differ between a run's code and this code, in modules of both:
    `["my_shop/prices.py"]`.
    """
    files = set[str]()
    for module, before in record["code"]["files"].items():
        now = code.get(module, before)
        files |= {file for file in {*before, *now} if before.get(file) != now.get(file)}
    return sorted(files)


def refuse_other_code(store: Store, name: str, code: Code) -> None:
    """Raise ValueError, file by file, for a run with other code of its author."""
    record = record_of(store, name)
    if record and (files := changed(record, code)):
        raise ValueError(
            f"The run {name!r} works under other code:\n{listed(files)}\nPut it back, continue "
            "under this code with --accept-code (recorded in run.json), or start another run "
            "without --run."
        )


def accept_code(store: Store, name: str, own: CodeDigests, code: Code) -> None:
    """Let a run continue under this code, `own` its digests by stage, with an entry in run.json;
    finished steps stay. Raises Locked while a process writes it.
    """
    layout = RunLayout(name)
    if record_of(store, name) is None:
        return
    with only_writer(store, layout.uri):
        record = record_of(store, name)
        if record and (files := changed(record, code)):
            accepted = _accepted(store, record, files, own, code)
            store.write_json(layout.record, as_json(accepted))


def _accepted(
    store: Store, record: RunRecord, files: list[str], own: CodeDigests, code: Code
) -> RunRecord:
    layout, before = RunLayout(record["name"]), digests(record)
    begun = BEFORE_STEPS if store.read_json(layout.start) else ()
    after = {stage: own[stage] for stage in own if stage not in begun}
    after |= {stage: before[stage] for stage in begun if stage in before}
    done = [step for step in layout.steps(store) if store.holds(layout.step(step).policy)]
    entry: AcceptedCode = {
        "step": max(done, default=0),
        "time_ms": int(time.time() * 1000),
        "files": files,
        "before": before,
        "after": after,
    }
    return {
        **record,
        "settings": {**record["settings"], "code": as_json(after)},
        "code": recorded({**record["code"]["files"], **code}),
        "accepted_code": [*record.get("accepted_code", []), entry],
    }


def before_edit(
    store: Store, settings: Mapping[str, JSON], code: Code
) -> tuple[RunRecord, list[str]] | None:
    """The newest run with these settings under other code, and the files that differ."""
    if not settings["code"]:
        return None
    same = {**settings, "code": 0}
    records = [record for record in run_records(store) if {**record["settings"], "code": 0} == same]
    if not records:
        return None
    newest = max(records, key=itemgetter("created_ms"))
    return newest, changed(newest, code)


def listed(lines: Iterable[str]) -> str:
    """Indent lines for a message."""
    return "\n".join(f"  {line}" for line in lines)
