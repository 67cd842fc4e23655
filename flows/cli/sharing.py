"""The commands that share a run's policy, and that verify a run by training it again."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from rich.table import Column, Table

from agentfly_core.experiment.context import final_policy
from agentfly_core.experiment.run_layout import RunLayout, record_of
from agentfly_core.models import adapter_artifact
from agentfly_core.runs import versioning
from agentfly_core.runs.run import known_run
from agentfly_core.store import transfer
from agentfly_core.store.lease import only_writer
from agentfly_core.store.store import Pointer, Store
from agentfly_core.system.formats.text import counted
from flows.cli.arguments import RUN, STORE, Commands
from flows.local import verification
from flows.local.state_dirs import STATE, main_workspace
from flows.local.terminal import VisibleConsole
from flows.store import store_at

REMOTE = (
    "where it is shared: a folder or s3://bucket/prefix (default: `agentfly` in DVC's default "
    "remote)"
)
INTO = "where it is trained; the same command continues there (default: .agentfly/verify/RUN)"


def add(commands: Commands) -> None:
    """The commands that share a policy, and that verify a run."""
    for name, command in (("push", push), ("pull", pull)):
        sharing = commands.add(name, command)
        sharing.add_argument("run", help=RUN)
        sharing.add_argument("--remote", default="", metavar="URI", help=REMOTE)
        sharing.add_argument("--store", default="", help=STORE)
    verifying = commands.add("verify", verify)
    verifying.add_argument("run", help=RUN)
    verifying.add_argument("--into", type=Path, metavar="FOLDER", help=INTO)
    verifying.add_argument("--store", default="", help=STORE)


def push(arguments: Namespace) -> None:
    """Share a run's policy."""
    _transfer(arguments.run, store_at(arguments.store), _remote(arguments.remote))


def pull(arguments: Namespace) -> None:
    """Fetch a run's policy; raises Locked while a process writes the run."""
    source, target = _remote(arguments.remote), store_at(arguments.store)
    known_run(source, arguments.run)
    with only_writer(target, RunLayout(arguments.run).uri):
        _transfer(arguments.run, source, target)


def _remote(uri: str) -> Store:
    store = store_at(uri or versioning.remote(Path.cwd()))
    if store.remote is None and store.root.exists() and not store.root.is_dir():
        raise ValueError(
            f"{store.root} is not a folder: name a folder or an s3:// uri by --remote."
        )
    return store


def _transfer(run: str, source: Store, target: Store) -> None:
    """Copy the last policy, the base model of an adapter, and the run's record and summary."""
    policy = final_policy(source, run)
    base = adapter_artifact.base_of(source, policy)
    artifacts = [*filter(None, [base]), policy]
    for name in dict.fromkeys([run, *map(_run_of, artifacts)]):
        _require_same(name, source, target)
    copied = transfer.copy(artifacts, source, target)
    for uri in (RunLayout(run).record, RunLayout(run).summary):
        transfer.copy_json(uri, source, target)
    news = f"{counted(len(copied), 'artifact')} copied" if copied else "it was there already"
    print(f"{policy.uri} of {source.uri} is in {target.uri}: {news}.")


def _run_of(artifact: Pointer) -> str:
    """The run that made an artifact; empty for a shared artifact."""
    folder, name, *_ = artifact.uri.split("/")
    return name if folder == "runs" else ""


def _require_same(run: str, source: Store, target: Store) -> None:
    """Raise ValueError where the target has another run of this name."""
    there = record_of(target, run) if run else None
    record = record_of(source, run) if there else None
    if there and (record is None or there["uid"] != record["uid"]):
        raise ValueError(
            f"{target.uri} has another run {run!r} of its own, "
            "which would be lost: use another --store or --remote."
        )


def verify(arguments: Namespace) -> int:
    """Train a run again and compare; the exit status is 1 where anything differs."""
    store, name = store_at(arguments.store), arguments.run
    into = arguments.into or main_workspace(Path.cwd()) / STATE / "verify" / name
    differences = verification.verify(store, name, into)
    table = Table(Column("artifact", overflow="fold"), "trained again, it", show_edge=False)
    for uri, difference in differences.items():
        table.add_row(uri, difference or "agrees")
    VisibleConsole().print(table)
    same = [*differences.values()].count("")
    print(f"{same} of {len(differences)} artifacts of {name} agree to the byte, see {into}.")
    return int(same < len(differences))
