"""Held-out evaluation of a policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from prefect import flow

from agentfly_core.experiment.context import ExperimentContext
from agentfly_core.pipeline import inputs
from agentfly_core.pipeline.services import RolloutServices, rollout_services
from agentfly_core.records.dataset import shards_of_split
from agentfly_core.runs.summary import Evaluation, evaluation
from agentfly_core.store.store import Artifact
from agentfly_core.system.formats.json_value import JSON
from flows import dvc_outputs
from flows.flow_run import context_of_flow
from flows.local.devices import devices
from flows.local.state_dirs import settle
from flows.parameters import ExperimentName, Overrides, SiteName, StoreUri
from flows.reporting import reporting_stage
from tasks.model import base_model
from tasks.prepare import prepare
from tasks.rollout import held_out, require_room
from tasks.score import score

Dataset = tuple[ExperimentContext, Artifact]
"""An experiment whose data is one of evaluate.datasets, and that dataset."""


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
    context = context_of_flow(experiment, overrides, site, store)
    chosen = policy_named(context, policy)
    data, logs = prepare(context), settle(Path.cwd()).state / "logs"
    holder = f"the evaluation of {policy or context.experiment}"
    gpus, reports = context.site.sampler_gpus, reporting_stage(context, "evaluate", chosen.digest)
    with devices(context.site, gpus, holder), reports as reporter:
        require_room(context, chosen, data, "test")
        others = further_datasets(context, chosen)
        with rollout_services(context, chosen, f"evaluate-{chosen.digest[:16]}", logs) as services:
            found = evaluated_everywhere(context, services, chosen, data, others, 0)
        reporter.data(data)
        reporter.evaluation(found, 0)
    if dvc_outputs.wanted():
        dvc_outputs.write_evaluation(context, found)
    return found.to_json()


def further_datasets(context: ExperimentContext, policy: Artifact) -> dict[str, Dataset]:
    """What evaluate.datasets names, prepared; raises ValueError for one that cannot be played."""
    found = {}
    for name, dataset in context.science.evaluate.datasets.items():
        there = context.on(context.science.on(dataset))
        data = prepare(there)
        require_room(there, policy, data, "test")
        found[name] = there, data
    return found


def evaluated_everywhere(
    context: ExperimentContext,
    services: RolloutServices,
    policy: Artifact,
    data: Artifact,
    others: Mapping[str, Dataset],
    step: int,
) -> Evaluation:
    """How the policy of a step does on the test split, and on each of `further_datasets`."""
    found = evaluated(context, services, policy, data, "test", step)
    datasets = {}
    for name, (there, problems) in others.items():
        other = evaluated(there, services, policy, problems, "test", step)
        datasets[name] = replace(other, split=name)
    return replace(found, datasets=datasets)


def evaluated(
    context: ExperimentContext,
    services: RolloutServices,
    policy: Artifact,
    data: Artifact,
    split: str,
    step: int,
) -> Evaluation:
    """How the policy of a step does on a held-out split."""
    shards = range(shards_of_split(context.science, context.store.open(data), split))
    played = [held_out(context, services, policy, data, split, shard, step) for shard in shards]
    scored = score(context, played, step, f"{split} after step {step}")
    return evaluation(context, policy, split, played, scored)


def policy_named(context: ExperimentContext, reference: str) -> Artifact:
    """The policy that a reference names, see `inputs.policy_named`."""
    return inputs.policy_named(context, reference, partial(base_model, parent=None))
