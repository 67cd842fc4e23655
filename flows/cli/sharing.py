"""The commands that export and share a run's policy, and that repeat a run to compare it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.table import Column, Table

from agentfly_core.experiment.run_layout import RunLayout, record_of
from agentfly_core.experiment.run_policies import final_policy
from agentfly_core.models import adapter_artifact
from agentfly_core.runs import versioning
from agentfly_core.runs.run import known_run
from agentfly_core.runs.run_names import run_named
from agentfly_core.store import transfer
from agentfly_core.store.lease import only_writer
from agentfly_core.store.store import Pointer, Store
from agentfly_core.system.formats.text import counted
from flows.cli.arguments import WHERE, RunArgument, StoreArgument
from flows.local import verification
from flows.local.state_dirs import STATE, main_workspace
from flows.local.terminal import VisibleConsole
from flows.store import store_at

RemoteUri = Annotated[
    str,
    Parameter(
        name="--remote",
        group=WHERE,
        help="where it is shared: a folder or s3://bucket/prefix (default: `agentfly` in DVC's "
        "default remote)",
    ),
]


def export(policy: str, folder: Path, /, *, store_uri: StoreArgument = "") -> None:
    """Write a policy for transformers and vLLM.

    For example `agentfly export run:mine ./policy`.

    Args:
        policy: run:NAME (its last), run:NAME@STEP (0: the start)
        folder: where it is written; must not exist
    """
    from agentfly_core.pipeline import export as exports

    exports.export(store_at(store_uri), policy, folder)
    print(f"{folder} holds {policy}; its README.md says how it is loaded.")


def push(run: RunArgument, /, *, remote: RemoteUri = "", store_uri: StoreArgument = "") -> None:
    """Share a run's last policy.

    For example `agentfly push mine --remote s3://bucket/shared`.
    """
    _transfer(run, store_at(store_uri), _remote(remote))


def pull(run: RunArgument, /, *, remote: RemoteUri = "", store_uri: StoreArgument = "") -> None:
    """Fetch a run's last policy that another clone has pushed.

    For example `agentfly pull mine`.
    """
    source, target = _remote(remote), store_at(store_uri)
    known_run(source, run)
    with only_writer(target, RunLayout(run).uri):
        _transfer(run, source, target)


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


def verify(run: RunArgument, /, *, into: Path | None = None, store_uri: StoreArgument = "") -> int:
    """Train a finished run again, and compare every byte.

    For example `agentfly verify mine`. The run's settings and its commit of AgentFly are used; the
    exit status is 1 where anything differs.

    Args:
        into: where it is trained; the same command continues there (default: .agentfly/verify/RUN)
    """
    store = store_at(store_uri)
    run = run_named(store, run)
    into = into or main_workspace(Path.cwd()) / STATE / "verify" / run
    differences = verification.verify(store, run, into)
    table = Table(Column("artifact", overflow="fold"), "trained again, it", show_edge=False)
    for uri, difference in differences.items():
        table.add_row(uri, difference or "agrees")
    VisibleConsole().print(table)
    same = [*differences.values()].count("")
    print(f"{same} of {len(differences)} artifacts of {run} agree to the byte, see {into}.")
    return int(same < len(differences))
