"""Copy runs to other stores."""

from contextlib import suppress

from agentfly_core.experiment.memory import memory_of
from agentfly_core.experiment.run_layout import RunLayout, record_of
from agentfly_core.experiment.run_policies import final_policy
from agentfly_core.models import adapter_artifact
from agentfly_core.records.run_record import RunRecord
from agentfly_core.store import transfer
from agentfly_core.store.artifact import Pointer
from agentfly_core.store.store import Store
from agentfly_core.system.formats.checksummed_json import Damaged


def share(run: str, source: Store, target: Store) -> tuple[Pointer, int]:
    """Copy the last policy of a run from the store `source` to the store `target`.

    The policy's memory (a folder of files), run.json and summary.json are copied, too. If the
    policy is an adapter, its base model is also copied. Returns the policy and the number of copied
    artifacts. Raises ValueError if `target` already contains a different run with this name.
    """
    policy = final_policy(source, run)
    base, memory = adapter_artifact.base_of(source, policy), memory_of(source, policy)
    # the policy is copied last, because it cannot be used without its base model
    artifacts = [*filter(None, [base, memory]), policy]
    of_runs = [one.uri.split("/")[1] for one in artifacts if one.uri.startswith("runs/")]
    for name in dict.fromkeys([run, *of_runs]):
        _require_same(name, source, target)
    copied = transfer.copy(artifacts, source, target)
    for uri in (RunLayout(run).record, RunLayout(run).summary):
        transfer.copy_json(uri, source, target)
    return policy, len(copied)


def copy_origins(record: RunRecord, store: Store, again: Store) -> None:
    """Copy the data that a run needs from other runs.

    For the run that `record` describes, the following is copied from `store` to `again`:

    - its parent (the policy from which the run starts) and the reference policy of the KL penalty
    - the base models and the memories (folders of files) of both policies
    - the learner state of the parent
    - run.json and start.json of all other runs in `store`
    """
    parent = record["parent"]
    policies = [Pointer.of(it, "run.json") for it in (parent, record["reference"]) if it]
    learner = f"{parent['uri'].rpartition('/')[0]}/learner" if parent else ""
    learners = [store.artifact(learner)] if parent and store.holds(learner) else []
    bases = filter(None, (adapter_artifact.base_of(store, policy) for policy in policies))
    memories = filter(None, (memory_of(store, policy) for policy in policies))
    transfer.copy([*bases, *memories, *policies, *learners], store, again)
    for name in {*store.names("runs")} - {record["name"]}:
        with suppress(Damaged):  # damage of another run matters only if its policy is needed
            for uri in (RunLayout(name).record, RunLayout(name).start):
                transfer.copy_json(uri, store, again)


def _require_same(run: str, source: Store, target: Store) -> None:
    """Raise ValueError if the store `target` contains a different run with the same name."""
    there = record_of(target, run)
    record = record_of(source, run) if there else None
    if there and (record is None or there["uid"] != record["uid"]):
        raise ValueError(
            f"{target.uri} already has a different run {run!r}, "
            "which would be overwritten. Use another --store or --remote."
        )
