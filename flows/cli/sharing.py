"""Commands that export or share a run's policy, or repeat a run and compare the artifacts."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from agentfly_core.experiment.run_layout import RunLayout
from agentfly_core.reports.show.sources import all_episodes
from agentfly_core.runs import versioning
from agentfly_core.runs.listing import run_named
from agentfly_core.runs.run import known_run
from agentfly_core.runs.sharing import share
from agentfly_core.store.lease import only_writer
from agentfly_core.store.store import Store
from agentfly_core.system.formats.text import counted
from flows.cli.arguments import WHERE, RunArg, StoreArg
from flows.local.state_dirs import STATE, main_workspace
from flows.store import store_at
from flows.verification import repeat

RemoteUri = Annotated[
    str,
    Parameter(
        name="--remote",
        group=WHERE,
        help="where it is shared: a folder or s3://bucket/prefix (default: `agentfly` in DVC's "
        "default remote)",
    ),
]


def export(
    policy: str,
    folder: Path,
    /,
    *,
    episodes: bool = False,
    speaker: str = "",
    store_uri: StoreArg = "",
) -> None:
    """Write a policy for transformers and vLLM, or write episodes.

    Args:
        policy: run:NAME (the run's last policy), or run:NAME@STEP (0: before step 1). With
            --episodes, also play:NAME
        folder: the folder to write; must not exist
        episodes: write episodes instead of a policy: the episodes of all steps (run:NAME), of one
            step (run:NAME@STEP), or of play:NAME. The folder then has chats.jsonl for a warm start,
            and traces.jsonl with token ids
        speaker: with --episodes, write only the replies of this speaker (default: all replies of
            the trained policy)
    """
    from agentfly_core.pipeline import export as exports
    from agentfly_core.pipeline.play import exported

    if episodes:
        store = store_at(store_uri)
        written = exported.export(all_episodes(store, run_named(store, policy)), speaker, folder)
        print(f"{folder}: {', '.join(f'{n} {what}' for what, n in written.items() if n)}")
        return
    exports.export(store_at(store_uri), policy, folder)
    print(f"{policy} is in {folder}; the README.md there shows how to load it.")


def push(run: RunArg, /, *, remote: RemoteUri = "", store_uri: StoreArg = "") -> None:
    """Share a run's last policy."""
    _transfer(run, store_at(store_uri), store_at(remote or versioning.remote(Path.cwd())))


def pull(run: RunArg, /, *, remote: RemoteUri = "", store_uri: StoreArg = "") -> None:
    """Fetch a run's last policy that another clone has pushed."""
    source, target = store_at(remote or versioning.remote(Path.cwd())), store_at(store_uri)
    known_run(source, run)
    with only_writer(target, RunLayout(run).uri):
        _transfer(run, source, target)


def _transfer(run: str, source: Store, target: Store) -> None:
    policy, copied = share(run, source, target)
    news = counted(copied, "artifact")
    print(f"{target.uri} now has {policy.uri} of {source.uri}: {news} copied.")


def verify(run: RunArg, /, *, store_uri: StoreArg = "") -> int:
    """Train a finished run again, and compare every byte.

    The repeated training uses the settings of the run, and the commit of AgentFly with which the
    run was trained. The exit status is 1 if anything differs. The training runs in
    .agentfly/verify/RUN. After an interruption, the same command continues the training.
    """
    store = store_at(store_uri)
    run = run_named(store, run)
    into = main_workspace() / STATE / "verify" / run
    compared = repeat(store, run, into)
    for uri, difference in compared.items():
        print(f"{uri} {difference or 'agrees'}")
    same = [*compared.values()].count("")
    print(
        f"{same} of {len(compared)} artifacts of {run} are identical in the repeated run. The "
        f"repeated run is in {into}."
    )
    return int(same < len(compared))
