"""The warm start: demonstrations, then masked supervised fine-tuning in rounds."""

from __future__ import annotations

from pathlib import Path

from prefect import flow

from agentfly_core.artifacts.store import Artifact
from agentfly_core.config.experiment import step_named
from agentfly_core.pipeline.services import IN_PROCESS, Playground, environments_service, learner_service
from agentfly_core.runs.run import Lab
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
    lab = lab_of_flow(experiment, overrides, site, store)
    parent, logs = lab.parent, settle(Path.cwd()).state / "logs"
    holder = f"the warm start of {lab.experiment}"
    with devices(lab.site, lab.site.gpus, holder), telling_stage(lab, "warm-start") as tell:
        data, model = prepare(lab), base_model(lab, parent)
        require_room(lab, model, data, "train")
        owner = f"warm-start-{lab.experiment}"
        with environments_service(lab, owner) as environments, learner_service(lab, owner, logs) as learner:
            policy = warm_started(lab, model, data, Playground(IN_PROCESS, environments), learner)
        tell.data(data)
        tell.made(stages_before(lab, parent))
    if dvc_outputs.wanted():
        dvc_outputs.write_pointer(lab, "warm_start", policy)
    return policy


def warm_started(lab: Lab, model: Artifact, data: Artifact, ground: Playground, learner: Service) -> Artifact:
    """The policy that reinforcement learning starts from; the model itself where no warm start is asked for."""
    if lab.science.warm_start is None:
        return model
    if step_named(lab.science.warm_start.demonstrations):
        demonstrations = choose(lab, model, data)
    else:
        demonstrations = demonstrate(lab, model, data, ground.environments)
    for number in range(1, lab.science.warm_start.rounds + 1):
        policy = warm_start(lab, model, demonstrations, ground.sampler, learner, number)
    return policy
