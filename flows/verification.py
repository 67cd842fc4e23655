"""Verify a run: train it again, and compare the artifacts of both trainings."""

import subprocess
import sys
from pathlib import Path

from agentfly_core.experiment.continuing import refuse_other_stages
from agentfly_core.experiment.run_layout import summary_of
from agentfly_core.experiment.task import import_tasks
from agentfly_core.experiment.user_code import changed, code_of, edited
from agentfly_core.records.run_record import RunRecord
from agentfly_core.runs.run import known_run, recorded_settings
from agentfly_core.runs.sharing import copy_origins
from agentfly_core.store.artifact import Artifact
from agentfly_core.store.manifest import MANIFEST, OUTSIDE_DIGEST
from agentfly_core.store.store import Store
from agentfly_core.system import files
from agentfly_core.system.formats.text import environment
from agentfly_core.system.revision import revision

SAME_SITE = ("sampler", "device", "offload")


def repeat(store: Store, name: str, into: Path) -> dict[str, str]:
    """Train a finished run again, and compare the artifacts of both trainings.

    The new training has its own store in the folder `into`. If an earlier call was interrupted, its
    training continues. Learner states are not compared. Returns a text for each compared artifact,
    by its uri: "" if both artifacts are equal, else a description of the difference. Raises
    ValueError if the run cannot be repeated here, or if the training fails.
    """
    record = known_run(store, name)
    require_repeatable(store, record)
    again = Store.at(str(into / "store"), into / "cache")
    copy_origins(record, store, again)
    settings = (into / f"{record['experiment']}.yaml").resolve()  # JSON is YAML
    files.write_json(settings, {k: v for k, v in record["settings"].items() if k != "code"})
    commit, code = str(record["revision"]["commit"]), (into / "code").resolve()
    is_here = record["code"]["modules"] or commit == revision()["commit"]
    if not is_here and commit.isalnum() and not code.exists():
        # if git does not have the commit, it prints an error, and the code of this folder is used
        subprocess.run(["git", "worktree", "add", "--force", "--detach", str(code), commit])
    code = code if code.exists() else Path.cwd()
    # settings that are numbers, such as ranks and threads, change the last bits of results
    site = [(k, v) for k, v in record["site"].items() if isinstance(v, int) or k in SAME_SITE]
    child = {**environment(), **{f"AGENTFLY_{k.upper()}": str(v) for k, v in site}}
    # the repetition must not appear among the user's runs
    child["AGENTFLY_MLFLOW_TRACKING_URI"] = f"sqlite:///{into.resolve()}/mlflow.db"
    child["PYTHONPATH"] = str(code)
    words = ["-m", "flows", "train", str(settings), "--run", name, "--store", str(again.root)]
    if status := subprocess.run([sys.executable, "-P", *words], cwd=code, env=child).returncode:
        raise ValueError(
            f"The repeated training of {name} failed with exit status {status}. Its files are in "
            f"{into}."
        )
    return differences(store, again, name)


def require_repeatable(store: Store, record: RunRecord) -> None:
    """Check that a run can be repeated.

    Raises ValueError if the run is unfinished or has frozen (untrained) speakers, or if its code or
    the version of a stage has changed.
    """
    name, settings = record["name"], recorded_settings(record)
    if summary_of(store, name) is None:
        raise ValueError(
            f"The run {name!r} is not finished. `agentfly list` shows how to continue."
        )
    if record.get("accepted_code") or record.get("frozen"):
        raise ValueError(
            f"The run {name!r} cannot be repeated, because it was continued with --accept-code or "
            "has frozen speakers (agent.frozen)."
        )
    refuse_other_stages(name, record)
    if modules := changed(record, code_of(settings, import_tasks(settings))):
        commit = record["code"]["repository"]["commit"]
        names = ", ".join(edited(record) or modules)
        raise ValueError(
            f"The code of {names} changed after the run {name}. Restore the code of commit "
            f"{commit}."
        )


def differences(store: Store, again: Store, name: str) -> dict[str, str]:
    """Compare a run's artifacts in two stores. Learner states are not compared.

    Returns a text for each artifact, by its uri. The text is "" if both artifacts are equal.
    Otherwise it describes the difference.
    """
    folders = [path.parent.relative_to(again.root) for path in again.root.rglob(MANIFEST)]
    uris = sorted(folder.as_posix() for folder in folders if folder.name != "learner")
    own = [uri for uri in uris if uri.startswith(("artifacts/", f"runs/{name}/"))]
    return {uri: _difference(store.get(uri), again.artifact(uri)) for uri in own}


def _difference(first: Artifact | None, second: Artifact) -> str:
    if first is None:
        return "is not in the first store"
    old, new = ({n: e["sha256"] for n, e in a.manifest["files"].items()} for a in (first, second))
    other = sorted({name for name, _ in old.items() ^ new.items()} - OUTSIDE_DIGEST)
    return f"differs in {', '.join(other)}" if other else ""
