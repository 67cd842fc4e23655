"""A run built again in another store, by the code of its recorded revision where git has that."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import yaml

from agentfly_core.artifacts import transfer
from agentfly_core.artifacts.run_layout import RunLayout
from agentfly_core.artifacts.store import Artifact, Store
from agentfly_core.records.run_record import RunRecord
from agentfly_core.runs.run import known_run
from agentfly_core.system.files import write_text
from agentfly_core.system.revision import revision

HOW = (
    "sampler",
    "device",
    "ranks",
    "zero_stage",
    "offload",
    "gradient_checkpointing",
    "token_budget",
    "threads",
)
"""What of a site may change the bits of what is made there."""


def rebuild(store: Store, name: str, into: Path) -> Store:
    """Train a finished run again, in the store `into`/store, which is returned; what is there is
    gone on with.

    A policy that the run starts from is copied. Raises ValueError for a run that cannot be built
    again here, and where training ends otherwise than well.
    """
    record = known_run(store, name)
    _require_one_code(record, name)
    rebuilt = Store.at(str(into / "store"), into / "cache")
    _copy_origin(record, store, rebuilt)
    settings = into / f"{record['experiment']}.yaml"
    said = {key: value for key, value in record["science"].items() if key != "code"}
    write_text(settings, yaml.safe_dump(said))
    code = _code(record, into)
    words = ["train", str(settings.resolve()), "--run", name, "--store", str(rebuilt.root)]
    command = [sys.executable, "-m", "flows", *words]
    environment = {**os.environ, **_site(record, into), "PYTHONPATH": str(code)}
    if status := subprocess.run(command, cwd=code, env=environment).returncode:
        raise ValueError(
            f"{name} could not be built again: training ended with exit status {status}. The same "
            f"command goes on; what there is lies in {into}."
        )
    return rebuilt


def _require_one_code(record: RunRecord, name: str) -> None:
    """Raise ValueError for a run that was made under several codes, or speaks with policies of
    other runs.
    """
    if record.get("earlier_code"):
        raise ValueError(f"{name} was continued with --accept-code: no one code makes it again.")
    if record.get("frozen"):
        raise ValueError(f"{name} has frozen speakers, which are not brought to another store.")


def _copy_origin(record: RunRecord, store: Store, rebuilt: Store) -> None:
    """Copy the policy that the run starts from, with its learner state, where it is another
    run's.
    """
    if (parent := record["parent"]) is None:
        return
    policy = Artifact(parent["uri"], parent["digest"])
    learner = f"{policy.uri.rpartition('/')[0]}/learner"
    beside = [store.artifact(learner)] if store.holds(learner) else []
    transfer.copy([policy, *beside], store, rebuilt)
    transfer.copy_json(RunLayout(parent["run"]).record, store, rebuilt)


def _code(record: RunRecord, into: Path) -> Path:
    """The folder whose code builds it: a worktree of the recorded commit, or this folder."""
    here, commit = Path.cwd(), record["revision"].get("commit")
    if commit in (None, "", revision()["commit"]) or not _has(here, f"{commit}^{{commit}}"):
        return here
    code = (into / "code").resolve()
    if not code.exists():
        subprocess.run(
            ["git", "worktree", "add", "--force", "--detach", str(code), str(commit)],
            cwd=here,
            check=True,
        )
    return code


def _has(folder: Path, what: str) -> bool:
    found = subprocess.run(["git", "cat-file", "-e", what], cwd=folder, stderr=subprocess.DEVNULL)
    return found.returncode == 0


def _site(record: RunRecord, into: Path) -> Mapping[str, str]:
    """The variables that make this site like the recorded one, with an MLflow store of its own."""
    site: Mapping[str, object] = {**record["site"]}
    like = {f"AGENTFLY_{key.upper()}": str(site[key]) for key in HOW if key in site}
    return {**like, "AGENTFLY_MLFLOW_TRACKING_URI": f"sqlite:///{into.resolve()}/mlflow.db"}
