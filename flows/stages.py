"""Flows that run a single stage: dataset, warm start, or held-out evaluation."""

from pathlib import Path

from prefect import flow

from agentfly_core.pipeline import inputs
from agentfly_core.pipeline.loop.evaluation import Evaluator
from agentfly_core.pipeline.loop.training import warm_started
from agentfly_core.pipeline.services import training_services
from agentfly_core.runs.summary import before_steps
from agentfly_core.store.artifact import Artifact
from agentfly_core.system.formats.json_value import JSON
from flows import dvc_outputs
from flows.flow_run import devices, experiment_of_flow
from flows.local.state_dirs import settle
from flows.parameters import ExperimentName, Overrides, SiteName, StoreUri
from flows.reporting import report_stage
from tasks.stages import TASKS


@flow(name="prepare", flow_run_name="prepare {experiment}")
def prepare(
    experiment: ExperimentName = "quickstart",
    overrides: Overrides = [],  # noqa: B006
    site: SiteName = "local",
    store: StoreUri = "",
) -> Artifact:
    """Build, check and version the dataset of an experiment, and nothing else."""
    loaded = experiment_of_flow(experiment, overrides, site, store)
    version = TASKS.version(loaded.name, loaded.settings, Path.cwd())
    data = TASKS.prepare(loaded)
    if dvc_outputs.wanted():  # the pipeline reports to MLflow
        dvc_outputs.write_dataset(loaded.name, loaded.store, data)
        return data

    report_stage(loaded, "prepare", data, version=version, stages={"prepare": [data]})
    return data


@flow(name="warm-start", flow_run_name="warm-start {experiment}")
def warm_start_only(
    experiment: ExperimentName = "quickstart",
    overrides: Overrides = [],  # noqa: B006
    site: SiteName = "local",
    store: StoreUri = "",
) -> Artifact:
    """Make the policy that reinforcement learning starts from, and nothing else."""
    loaded = experiment_of_flow(experiment, overrides, site, store)
    parent, logs = loaded.parent, settle().state / "logs"
    holder = f"the warm start of {loaded.name}"
    with devices(loaded.site, loaded.site.gpus, holder):
        data, model = TASKS.prepare(loaded), TASKS.base_model(loaded, parent)
        TASKS.require_room(loaded, model, data, ["train"])
        owner = f"warm-start-{loaded.name}"
        with training_services(loaded, model, owner, logs, scripted=True) as services:
            made = warm_started(TASKS, loaded, services, model, data)

    report_stage(loaded, "warm-start", data, stages=before_steps(data, model, made, parent))
    policy = made[-1] if made else model
    dvc_outputs.write(loaded.name, "warm_start", policy)
    return policy


@flow(name="evaluate", flow_run_name="evaluate {experiment} {policy}")
def evaluate(
    experiment: ExperimentName = "quickstart",
    policy: str = "",
    overrides: Overrides = [],  # noqa: B006
    site: SiteName = "local",
    store: StoreUri = "",
) -> dict[str, JSON]:
    """Play a policy on the held-out test problems of an experiment.

    The result contains the success rate, its 95 % interval and the number of problems.
    """
    loaded = experiment_of_flow(experiment, overrides, site, store)
    chosen = inputs.policy_named(loaded, policy, TASKS.base_model)
    data, logs = TASKS.prepare(loaded), settle().state / "logs"
    holder = f"the evaluation of {policy or loaded.name}"
    with devices(loaded.site, loaded.site.sampler_gpus, holder):
        evaluation = Evaluator(TASKS, loaded, data).once(chosen, logs)

    report_stage(loaded, "evaluate", data, policy=chosen.digest, evaluation=evaluation)
    dvc_outputs.write(loaded.name, "evaluation", evaluation)
    return evaluation.to_json()
