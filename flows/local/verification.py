"""Train a finished run again in another store, and compare the manifests of its artifacts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from rich.table import Column, Table

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


def verify(store: Store, name: str, into: Path) -> dict[str, str]:
    """Train a run again in `into`/store, or continue there; return `differences`.

    Raises ValueError if that is impossible here, or fails.
    """
    record = known_run(store, name)
    require_repeatable(store, record)
    again = Store.at(str(into / "store"), into / "cache")
    copy_origins(record, store, again)
    settings = (into / f"{record['experiment']}.yaml").resolve()  # JSON is YAML
    files.write_json(settings, {k: v for k, v in record["settings"].items() if k != "code"})
    code = Path.cwd() if record["code"]["modules"] else _checkout(record, into)
    site: dict[str, object] = {**record["site"]}
    site = {k: v for k, v in site.items() if isinstance(v, int) or k in SAME_SITE}
    child = {**environment(), **{f"AGENTFLY_{k.upper()}": str(v) for k, v in site.items()}}
    child["AGENTFLY_MLFLOW_TRACKING_URI"] = f"sqlite:///{into.resolve()}/mlflow.db"
    child["PYTHONPATH"] = str(code)
    words = ["-m", "flows", "train", str(settings), "--run", name, "--store", str(again.root)]
    if status := subprocess.run([sys.executable, "-P", *words], cwd=code, env=child).returncode:
        raise ValueError(f"Training {name} again ended with status {status}, see {into}.")
    return differences(store, again, name)


def require_repeatable(store: Store, record: RunRecord) -> None:
    """Raise ValueError for an unfinished run, or one of other code, stages or frozen speakers."""
    name, settings = record["name"], recorded_settings(record)
    if summary_of(store, name) is None:
        raise ValueError(f"The run {name!r} is not finished, see `agentfly list`.")
    if record.get("accepted_code") or record.get("frozen"):
        raise ValueError(f"The run {name!r} continued with other code or has frozen speakers.")
    refuse_other_stages(name, record)
    if modules := changed(record, code_of(settings, import_tasks(settings))):
        commit = record["code"]["repository"]["commit"]
        names = ", ".join(edited(record) or modules)
        raise ValueError(f"{name} has other code of {names}: restore commit {commit}.")


def _checkout(record: RunRecord, into: Path) -> Path:
    """A worktree of the run's commit of AgentFly; this folder without that commit."""
    commit, code = str(record["revision"]["commit"]), (into / "code").resolve()
    if commit != revision()["commit"] and commit.isalnum() and not code.exists():
        # without the commit git prints an error, and this folder is used
        subprocess.run(["git", "worktree", "add", "--force", "--detach", str(code), commit])
    return code if code.exists() else Path.cwd()


def differences(store: Store, again: Store, name: str) -> dict[str, str]:
    """Compare a run's artifacts but learner states in two stores: by uri, the difference or ""."""
    folders = [path.parent.relative_to(again.root) for path in again.root.rglob(MANIFEST)]
    uris = sorted(folder.as_posix() for folder in folders if folder.name != "learner")
    own = [uri for uri in uris if uri.startswith(("artifacts/", f"runs/{name}/"))]
    return {uri: _difference(store.get(uri), again.artifact(uri)) for uri in own}


def _difference(first: Artifact | None, second: Artifact) -> str:
    if first is None:
        return "is not in the first store"
    old, new = ({n: e["sha256"] for n, e in a.manifest["files"].items()} for a in (first, second))
    other = sorted(name for name, _ in old.items() ^ new.items() if name not in OUTSIDE_DIGEST)
    return f"differs in {', '.join(dict.fromkeys(other))}" if other else ""


def table(differences: Mapping[str, str]) -> Table:
    """A row for each artifact with its difference."""
    rows = Table(Column("artifact", overflow="fold"), "trained again, it", show_edge=False)
    for uri, difference in differences.items():
        rows.add_row(uri, difference or "agrees")
    return rows
