"""The warm start: demonstrations, then masked supervised fine-tuning in rounds."""

from __future__ import annotations

from pathlib import Path

from prefect import flow

from agentfly_core.config.reference import run_step
from agentfly_core.experiment.context import ExperimentContext
from agentfly_core.pipeline.services import TrainingServices, demonstration_services
from agentfly_core.runs.summary import stages_before
from agentfly_core.store.store import Artifact
from flows import dvc_outputs
from flows.flow_run import context_of_flow
from flows.local.devices import devices
from flows.local.state_dirs import settle
from flows.parameters import ExperimentName, Overrides, SiteName, StoreUri
from flows.reporting import reporting_stage
from tasks.model import base_model
from tasks.prepare import prepare
from tasks.rollout import require_room
from tasks.warm_start import choose, demonstrate, warm_start


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
        data, model = prepare(context), base_model(context, parent)
        require_room(context, model, data, "train")
        owner = f"warm-start-{context.experiment}"
        with demonstration_services(context, model, owner, logs) as services:
            made = warm_started(context, services, model, data)
        reporter.data(data)
        reporter.made(stages_before(data, model, made, parent))
    policy = made[-1] if made else model
    if dvc_outputs.wanted():
        dvc_outputs.write_pointer(context, "warm_start", policy)
    return policy


def warm_started(
    context: ExperimentContext, services: TrainingServices, model: Artifact, data: Artifact
) -> list[Artifact]:
    """The demonstrations and then the policy of each round; nothing where no warm start is asked
    for.
    """
    if (settings := context.science.own_warm_start) is None:
        return []
    if run_step(settings.demonstrations):
        demonstrations = choose(context, model, data)
    else:
        demonstrations = demonstrate(context, services, model, data)
    rounds = range(1, settings.rounds + 1)
    return [
        demonstrations,
        *(warm_start(context, services, model, demonstrations, number) for number in rounds),
    ]
