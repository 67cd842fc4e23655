"""The warm start: demonstrations, then masked supervised fine-tuning in rounds."""

from __future__ import annotations

from pathlib import Path
from time import time

from prefect import flow

from agentfly_core.pipeline.loop.training import warm_started
from agentfly_core.pipeline.services import training_services
from agentfly_core.runs.summary import stages_before
from agentfly_core.store.artifact import Artifact
from agentfly_core.tracking.mlflow_run import MlflowRun
from agentfly_core.tracking.sync import send_dataset, send_stages
from flows import dvc_outputs
from flows.flow_run import experiment_of_flow
from flows.local.devices import devices
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
        started_ms = int(time() * 1000)
        data, model = TASKS.prepare(loaded), TASKS.base_model(loaded, parent)
        TASKS.require_room(loaded, model, data, ["train"])
        owner = f"warm-start-{loaded.name}"
        with training_services(loaded, model, owner, logs, scripted=True) as services:
            made = warm_started(TASKS, loaded, services, model, data)

    def send(mlflow: MlflowRun) -> None:
        send_dataset(loaded, mlflow, data)
        send_stages(loaded, mlflow, stages_before(data, model, made, parent))

    report_stage(loaded, "warm-start", started_ms, send)
    policy = made[-1] if made else model
    if dvc_outputs.wanted():
        dvc_outputs.write_pointer(loaded.name, "warm_start", policy)
    return policy
