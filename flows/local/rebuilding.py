"""A run built again in another store, by the code of its recorded revision where git has that."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from agentfly_core.config.reference import run_step
from agentfly_core.experiment.context import resolve
from agentfly_core.experiment.run_code import changed, listed
from agentfly_core.experiment.run_layout import RunLayout, record_of
from agentfly_core.experiment.user_code import code_of
from agentfly_core.models import adapter_artifact
from agentfly_core.records.run_record import RunRecord
from agentfly_core.runs.run import known_run, science_of
from agentfly_core.store import transfer
from agentfly_core.store.store import Pointer, Store
from agentfly_core.system import files
from agentfly_core.system.formats import strict_yaml
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
    continued.

    Policies of other runs that it starts from or stays near are copied. Raises ValueError for a run
    that cannot be built again here, and where training ends otherwise than well.
    """
    record = known_run(store, name)
    if record.get("accepted_code"):
        raise ValueError(f"{name} was continued with --accept-code: no one code rebuilds it.")
    if record.get("frozen"):
        raise ValueError(f"{name} has frozen speakers, which are not brought to another store.")
    require_same_code(record)
    rebuilt = Store.at(str(into / "store"), into / "cache")
    copy_origins(record, store, rebuilt)
    settings = into / f"{record['experiment']}.yaml"
    science = {key: value for key, value in record["science"].items() if key != "code"}
    files.write_text(settings, strict_yaml.dump(science))
    code = _code(record, into)
    words = ["train", str(settings.resolve()), "--run", name, "--store", str(rebuilt.root)]
    command = [sys.executable, "-P", "-m", "flows", *words]
    # this site is to be like the recorded one, but with an MLflow store of its own
    site: Mapping[str, object] = {**record["site"]}
    like = {f"AGENTFLY_{key.upper()}": str(site[key]) for key in HOW if key in site}
    mlflow = {"AGENTFLY_MLFLOW_TRACKING_URI": f"sqlite:///{into.resolve()}/mlflow.db"}
    environment = {**os.environ, **like, **mlflow, "PYTHONPATH": str(code)}
    folder = Path.cwd() if record["code"]["files"] else code
    if status := subprocess.run(command, cwd=folder, env=environment).returncode:
        raise ValueError(
            f"{name} could not be built again: training ended with exit status {status}. The same "
            f"command continues; what there is lies in {into}."
        )
    return rebuilt


def copy_origins(record: RunRecord, store: Store, rebuilt: Store) -> None:
    """Copy the inputs of a run from other runs: the policy and learner state of its start, the
    policy of its KL penalty, the base models of adapters, and the records of these runs.
    """
    policies, runs = [], []
    if parent := record["parent"]:
        policies.append(Pointer.of(parent, "run.json"))
        learner = f"{parent['uri'].rpartition('/')[0]}/learner"
        policies += [store.artifact(learner)] if store.holds(learner) else []
        runs.append(parent["run"])
    if reference := record["reference"]:
        policies.append(Pointer.of(reference, "run.json"))
        where = resolve(science_of(record)).algorithm.needs.reference
        runs += [policy.run] if where and (policy := run_step(where)) else []
    bases = filter(None, (adapter_artifact.base_of(store, policy) for policy in policies))
    transfer.copy([*bases, *policies], store, rebuilt)
    for name in runs:
        _copy_records(name, store, rebuilt)


def _copy_records(name: str, store: Store, rebuilt: Store) -> None:
    """Copy run.json and start.json of a run and of the runs that it continues."""
    for uri in (RunLayout(name).record, RunLayout(name).start):
        transfer.copy_json(uri, store, rebuilt)
    record = record_of(store, name)
    fork = science_of(record).fork if record else None
    if fork:
        _copy_records(fork.run, store, rebuilt)


def require_same_code(record: RunRecord) -> None:
    """Raise ValueError, file by file, where the author's code is not that of the run."""
    if files := changed(record, code_of(resolve(science_of(record)))):
        commit, dirty = (record["code"]["repository"][key] for key in ("commit", "dirty"))
        advice = f"Restore it, `git checkout {commit}`" if commit else "Restore it"
        lost = ", with what was not committed then" if dirty else ""
        raise ValueError(
            f"{record['name']} was made by other code than there is now:\n{listed(files)}\n"
            f"{advice}{lost}."
        )


def _code(record: RunRecord, into: Path) -> Path:
    """The folder whose code builds it: a worktree of the recorded commit, or this folder."""
    here, commit = Path.cwd(), record["revision"].get("commit")
    if commit == revision()["commit"] or not re.fullmatch("[0-9a-f]{40,64}", commit or ""):
        return here
    command = ["git", "cat-file", "-e", f"{commit}^{{commit}}"]
    if subprocess.run(command, cwd=here, stderr=subprocess.DEVNULL).returncode:
        return here
    code = (into / "code").resolve()
    if not code.exists():
        subprocess.run(
            ["git", "worktree", "add", "--force", "--detach", str(code), str(commit)],
            cwd=here,
            check=True,
        )
    return code
