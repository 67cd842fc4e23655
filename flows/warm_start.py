"""The warm start: demonstrations, then masked supervised fine-tuning in rounds."""

from __future__ import annotations

from pathlib import Path

from prefect import flow

from agentfly_core.pipeline.loop.warm_start import warm_started
from agentfly_core.pipeline.services import demonstration_services
from agentfly_core.runs.summary import stages_before
from agentfly_core.store.store import Artifact
from flows import dvc_outputs
from flows.flow_run import context_of_flow
from flows.local.devices import devices
from flows.local.state_dirs import settle
from flows.parameters import ExperimentName, Overrides, SiteName, StoreUri
from flows.reporting import reporting_stage
from tasks.stages import TASKS


@flow(name="warm-start", flow_run_name="warm-start {experiment}")
def warm_start_only(
    experiment: ExperimentName = "quickstart",
    overrides: Overrides = [],  # noqa: B006
    site: SiteName = "local",
    store: StoreUri = "",
) -> Artifact:
    """Make the policy that reinforcement learning starts from, and nothing else."""
    context = context_of_flow(experiment, overrides, site, store)
    parent, logs = context.parent, settle(Path.cwd()).state / "logs"
    holder = f"the warm start of {context.experiment}"
    with (
        devices(context.site, context.site.gpus, holder),
        reporting_stage(context, "warm-start") as reporter,
    ):
        data, model = TASKS.prepare(context), TASKS.base_model(context, parent)
        TASKS.require_room(context, model, data, ["train"])
        owner = f"warm-start-{context.experiment}"
        with demonstration_services(context, model, owner, logs) as services:
            made = warm_started(TASKS, context, services, model, data)
        reporter.data(data)
        reporter.made(stages_before(data, model, made, parent))
    policy = made[-1] if made else model
    if dvc_outputs.wanted():
        dvc_outputs.write_pointer(context.experiment, "warm_start", policy)
    return policy
