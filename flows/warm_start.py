"""The warm start: demonstrations, then masked supervised fine-tuning in rounds."""

from __future__ import annotations

from pathlib import Path

from prefect import flow

from agentfly_core.pipeline.loop.training import warm_started
from agentfly_core.pipeline.services import training_services
from agentfly_core.runs.summary import before_steps
from agentfly_core.store.artifact import Artifact
from flows import dvc_outputs
from flows.flow_run import devices, experiment_of_flow
from flows.local.state_dirs import settle
from flows.parameters import ExperimentName, Overrides, SiteName, StoreUri
from flows.reporting import report_stage
from tasks.stages import TASKS


@flow(name="warm-start", flow_run_name="warm-start {experiment}")
def warm_start_only(
    experiment: ExperimentName = "quickstart",
    overrides: Overrides = [],  # noqa: B006
    site: SiteName = "local",
    store: StoreUri = "",
) -> Artifact:
    """Make the policy that reinforcement learning starts from, and nothing else."""
    loaded = experiment_of_flow(experiment, overrides, site, store)
    parent, logs = loaded.parent, settle(Path.cwd()).state / "logs"
    holder = f"the warm start of {loaded.name}"
    with devices(loaded.site, loaded.site.gpus, holder):
        data, model = TASKS.prepare(loaded), TASKS.base_model(loaded, parent)
        TASKS.require_room(loaded, model, data, ["train"])
        owner = f"warm-start-{loaded.name}"
        with training_services(loaded, model, owner, logs, scripted=True) as services:
            made = warm_started(TASKS, loaded, services, model, data)

    report_stage(loaded, "warm-start", data, stages=before_steps(data, model, made, parent))
    policy = made[-1] if made else model
    if dvc_outputs.wanted():
        dvc_outputs.write_pointer(loaded.name, "warm_start", policy)
    return policy
