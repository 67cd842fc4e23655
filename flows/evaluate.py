"""Held-out evaluation of a policy."""

from __future__ import annotations

from pathlib import Path

from prefect import flow

from agentfly_core.pipeline import inputs
from agentfly_core.pipeline.loop.evaluation import evaluated_policy
from agentfly_core.system.formats.json_value import JSON
from flows import dvc_outputs
from flows.flow_run import experiment_of_flow
from flows.local.devices import devices
from flows.local.state_dirs import settle
from flows.parameters import ExperimentName, Overrides, SiteName, StoreUri
from flows.reporting import reporting_stage
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
    chosen = inputs.policy_named(loaded, policy, lambda model: TASKS.base_model(model, None))
    data, logs = TASKS.prepare(loaded), settle(Path.cwd()).state / "logs"
    holder = f"the evaluation of {policy or loaded.name}"
    gpus, reports = loaded.site.sampler_gpus, reporting_stage(loaded, "evaluate", chosen.digest)
    with devices(loaded.site, gpus, holder), reports as reporter:
        evaluation = evaluated_policy(TASKS, loaded, chosen, data, logs)
        reporter.data(data)
        reporter.evaluation(evaluation, 0)
    if dvc_outputs.wanted():
        dvc_outputs.write_evaluation(loaded.name, evaluation)
    return evaluation.to_json()
