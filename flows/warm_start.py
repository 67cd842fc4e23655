"""The warm start: demonstrations, then masked supervised fine-tuning in rounds."""

from __future__ import annotations

from pathlib import Path

from prefect import flow

from agentfly_core.artifacts.store import Artifact
from agentfly_core.config.experiment import step_named
from agentfly_core.pipeline.services import IN_PROCESS, RolloutServices, environments_service, learner_service
from agentfly_core.runs.run import ExperimentContext
from agentfly_core.runs.summary import stages_before
from agentfly_core.system.service import Service
from flows import dvc_outputs
from flows.local.devices import devices
from flows.local.state_dirs import settle
from flows.parameters import ExperimentName, Overrides, SiteName, StoreUri
from flows.session import telling_stage
from flows.triggered import lab_of_flow
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
    context = lab_of_flow(experiment, overrides, site, store)
    parent, logs = context.parent, settle(Path.cwd()).state / "logs"
    holder = f"the warm start of {context.experiment}"
    with devices(context.site, context.site.gpus, holder), telling_stage(context, "warm-start") as tell:
        data, model = prepare(context), base_model(context, parent)
        require_room(context, model, data, "train")
        owner = f"warm-start-{context.experiment}"
        with environments_service(context, owner) as environments, learner_service(context, owner, logs) as learner:
            policy = warm_started(context, model, data, RolloutServices(IN_PROCESS, environments), learner)
        tell.data(data)
        tell.made(stages_before(context, parent))
    if dvc_outputs.wanted():
        dvc_outputs.write_pointer(context, "warm_start", policy)
    return policy


def warm_started(context: ExperimentContext, model: Artifact, data: Artifact, ground: RolloutServices, learner: Service) -> Artifact:
    """The policy that reinforcement learning starts from; the model itself where no warm start is asked for."""
    if context.science.warm_start is None:
        return model
    if step_named(context.science.warm_start.demonstrations):
        demonstrations = choose(context, model, data)
    else:
        demonstrations = demonstrate(context, model, data, ground.environments)
    for number in range(1, context.science.warm_start.rounds + 1):
        policy = warm_start(context, model, demonstrations, ground.sampler, learner, number)
    return policy
