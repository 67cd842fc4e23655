"""The code of a run: stored with it, compared with the code at hand, and replaced with
`--accept-code`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from operator import itemgetter
from pathlib import Path

from pydantic import TypeAdapter

from agentfly_core.config.experiment import Science
from agentfly_core.config.tasks import datasets
from agentfly_core.experiment.run_layout import RunLayout, record_of
from agentfly_core.experiment.user_code import stored
from agentfly_core.experiment.user_code.difference import differences
from agentfly_core.experiment.user_code.modules import Code
from agentfly_core.experiment.user_code.repository import repository
from agentfly_core.records.run_record import CodeRecord, EarlierCode, RunRecord
from agentfly_core.store.lease import only_writer
from agentfly_core.store.store import ArtifactKey, Pointer, Store
from agentfly_core.system.formats.checksummed_json import Damaged
from agentfly_core.system.formats.hashing import digest
from agentfly_core.system.formats.json_value import JSON, as_json

logger = logging.getLogger(__name__)
BEFORE_STEPS = ("prepare", "demonstrate")
"""The stages whose outputs a run that has come to its first step continues with."""
DIGESTS = TypeAdapter(dict[str, dict[str, str]])
CHANGE = "uncommitted.diff"
FOLDER = "artifacts/code"


def publish(store: Store, code: Code) -> CodeRecord:
    """Store the sources of code, with the uncommitted change of the author's repository."""
    here = repository(Path.cwd())
    change = here.change if here else ""
    contents: dict[str, JSON] = {
        name: module.content.hex() for name, module in code.modules.items()
    }
    about: list[JSON] = [sorted(code.names), dict(code.versions), dict(code.files), change]
    key = digest(["code", 1, contents, *about])
    target = ArtifactKey(f"{FOLDER}/{key[:16]}", "code", key, {})
    if store.find(target) is None:
        with store.publish(target) as folder:
            stored.write(code, folder)
            if change:
                (folder / CHANGE).write_text(change)
    sources = store.artifact(target.uri)
    record: CodeRecord = {"uri": sources.uri, "digest": sources.digest}
    return {**record, "repository": here.revision} if here else record


def sources(store: Store, record: CodeRecord, code: Code) -> CodeRecord:
    """The sources that a run works under; where they are lost or damaged, or lack a dataset that is
    evaluated in addition, the code at hand is stored, which is no other.
    """
    if (earlier := _stored_code(store, record)) is None:
        published = publish(store, code)
        return record if record["uri"] == published["uri"] else published
    return record if code.names <= earlier.names else publish(store, earlier.with_more(code))


def _stored_code(store: Store, sources: CodeRecord) -> Code | None:
    """The stored code, or None where it is lost or damaged."""
    artifact = Pointer.of(sources, "run.json")
    if not store.holds(artifact.uri) or not store.whole(artifact):
        return None
    return stored.read(store.open(artifact))


def remove_unused(store: Store, sources: CodeRecord) -> None:
    """Remove sources that no run works under."""
    used = (record["code"]["uri"] for record in _records(store))
    if sources["uri"].startswith(f"{FOLDER}/") and sources["uri"] not in used:
        store.remove(sources["uri"])


def _records(store: Store) -> Iterator[RunRecord]:
    """The run.json of each run."""
    for name in store.names("runs"):
        with suppress(Damaged):  # it is reported where it is read for its own sake
            if record := record_of(store, name):
                yield record


def under(science: Science, record: RunRecord) -> Science:
    """The science with the digests of the code that a run works under.

    A dataset that is evaluated in addition has its own.
    """
    code = digests(record)
    if made := {**science.code.get("prepare", {}), **code.get("prepare", {})}:
        code["prepare"] = made
    return science.model_copy(update={"code": code})


def with_data_of_origin(store: Store, science: Science) -> Science:
    """The science of a fork with the digests of the code that made the data of the run that it goes
    on from, which it plays.
    """
    origin = None
    with suppress(Damaged):  # a fork that has begun continues without it
        origin = record_of(store, science.fork.run) if science.fork else None
    if origin is None:
        return science
    made_by = {path.partition(":")[0] for path in datasets(science.data.model_dump())}
    own, theirs = science.code.get("prepare", {}), digests(origin).get("prepare", {})
    prepare = {module: own[module] for module in own if module not in made_by}
    prepare |= {module: theirs[module] for module in theirs if module in made_by}
    others = {stage: science.code[stage] for stage in science.code if stage != "prepare"}
    code = {**others, **({"prepare": prepare} if prepare else {})}
    return science.model_copy(update={"code": code})


def digests(record: RunRecord) -> dict[str, dict[str, str]]:
    """Those of the code that a run works under, see `Science.code`."""
    return DIGESTS.validate_python(record["science"]["code"])


def changed(store: Store, record: RunRecord, code: Code, of_ours: bool = False) -> list[str]:
    """Which functions of which files differ between the code that a run works under, parsed by this
    Python, and the code at hand: in its author's modules, or in AgentFly's.
    """
    if (earlier := _stored_code(store, record["code"])) is not None:
        return differences(earlier, code, of_ours)
    # the sources are lost or damaged
    by_stage = {} if of_ours else digests(record)
    were = {module: was for own in by_stage.values() for module, was in own.items()}
    return [
        f"{module}: its former text is lost"
        for module, was in were.items()
        if module in code.names and code.digest(module) != was
    ]


def refuse_other_code(store: Store, name: str, code: Code) -> None:
    """Raise ValueError, function by function, for a run that works under other code of its author;
    of AgentFly's only tell.
    """
    if (record := record_of(store, name)) is None:
        return
    if lines := changed(store, record, code):
        raise ValueError(
            f"The run {name!r} works under other code:\n{listed(lines)}\nPut it back; or continue "
            "under this code with --accept-code, which run.json then says; or start another run "
            "without --run."
        )
    if lines := changed(store, record, code, of_ours=True):
        logger.warning(
            "What the run %s names of AgentFly has changed since it was started, and the versions "
            "of stages say that its results have not:\n%s",
            name,
            listed(lines),
        )


def accept_code(store: Store, name: str, own: Mapping[str, Mapping[str, str]], code: Code) -> None:
    """Let a run continue under the code at hand, which run.json then says; steps that are done
    stay. Raises Locked while a process writes it.
    """
    layout = RunLayout(name)
    if record_of(store, name) is None:
        return
    with only_writer(store, layout.uri):
        record = record_of(store, name)
        if record is None or not (lines := changed(store, record, code)):
            return
        store.write_json(
            layout.record, as_json(_under_other(store, name, record, lines, own, code))
        )


def _under_other(
    store: Store,
    name: str,
    record: RunRecord,
    differs: list[str],
    own: Mapping[str, Mapping[str, str]],
    code: Code,
) -> RunRecord:
    layout, before = RunLayout(name), digests(record)
    begun = BEFORE_STEPS if store.read_json(layout.start) else ()
    now = {stage: own for stage, own in own.items() if stage not in begun}
    now |= {stage: before[stage] for stage in begun if stage in before}
    done = [step for step in layout.steps(store) if store.holds(layout.step(step).policy)]
    was: EarlierCode = {
        "until": max(done, default=0),
        "code": before,
        "sources": record["code"],
        "differs": differs,
        "time_ms": int(time.time() * 1000),
    }
    return {
        **record,
        "science": {**record["science"], "code": now},
        "code": publish(store, code),
        "earlier_code": [*record.get("earlier_code", []), was],
    }


def before_edit(store: Store, science: Science, code: Code) -> tuple[RunRecord, list[str]] | None:
    """The newest run of the same settings under other code, and what differs; None where there is
    none.
    """
    if not science.code:
        return None
    same = science.model_copy(update={"code": {}}).model_dump(mode="json")
    records = [
        record
        for record in _records(store)
        if {**record["science"], "code": 0} == {**same, "code": 0}
    ]
    if not records:
        return None
    newest = max(records, key=itemgetter("created_ms"))
    return newest, changed(store, newest, code)


def listed(lines: Iterable[str]) -> str:
    """Lines as a message has them."""
    return "\n".join(f"  {line}" for line in lines)
