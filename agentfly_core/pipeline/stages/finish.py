"""Finish a run: write a ledger (a table with one row for each problem and step) and a summary."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from agentfly_core.experiment import keys
from agentfly_core.experiment.run_policies import final_policy
from agentfly_core.pipeline import retention
from agentfly_core.pipeline.produce import produce
from agentfly_core.records import ledger
from agentfly_core.records.run_record import Summary
from agentfly_core.runs.run import Run
from agentfly_core.runs.summary import Evaluation, run_ledger, summarise
from agentfly_core.system.formats.json_value import as_json


def finish(run: Run, evaluations: Sequence[Evaluation]) -> Summary:
    """Write the ledger and summary.json of a finished run, and return the summary.

    The ledger is a table with one row for each problem and step. `evaluations` contains the
    evaluations before and after training, or nothing for an experiment without rewards.
    """
    policy = final_policy(run.store, run.name)
    summary, target = summarise(run, policy, evaluations), keys.ledger(run.name, policy)

    def make(folder: Path) -> Mapping[str, float]:
        run_ledger(run.store, run.name, run.settings.own_steps).to_parquet(folder / ledger.FILE)
        return {}

    if run.settings.own_steps:
        produce(run.store, target, make)
    retention.retain(run, run.settings.steps)
    # written last, because a run with a summary counts as finished
    run.store.write_json(run.layout.summary, as_json(summary))
    return summary
