"""Held-out evaluation of a policy."""

from __future__ import annotations

from pathlib import Path

from prefect import flow

from agentfly_core.pipeline import inputs
from agentfly_core.pipeline.loop.evaluation import Evaluator
from agentfly_core.system.formats.json_value import JSON
from flows import dvc_outputs
from flows.flow_run import devices, experiment_of_flow
from flows.local.state_dirs import settle
from flows.parameters import ExperimentName, Overrides, SiteName, StoreUri
from flows.reporting import report_stage
from tasks.stages import TASKS


@flow(name="evaluate", flow_run_name="evaluate {experiment} {policy}")
def evaluate(
    experiment: ExperimentName = "quickstart",
    policy: str = "",
    overrides: Overrides = [],  # noqa: B006
    site: SiteName = "local",
    store: StoreUri = "",
) -> dict[str, JSON]:
    """Play a policy on the held-out test problems of an experiment: success, interval, number of
    problems.
    """
    loaded = experiment_of_flow(experiment, overrides, site, store)
    chosen = inputs.policy_named(loaded, policy, TASKS.base_model)
    data, logs = TASKS.prepare(loaded), settle(Path.cwd()).state / "logs"
    holder = f"the evaluation of {policy or loaded.name}"
    with devices(loaded.site, loaded.site.sampler_gpus, holder):
        evaluation = Evaluator(TASKS, loaded, data).once(chosen, logs)

    report_stage(loaded, "evaluate", data, policy=chosen.digest, evaluation=evaluation)
    if dvc_outputs.wanted():
        dvc_outputs.write_evaluation(loaded.name, evaluation)
    return evaluation.to_json()
