"""Held-out evaluation of a policy: on a split, and on the further datasets of an experiment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from agentfly_core.experiment.experiment import Experiment
from agentfly_core.pipeline.loop.stages import Stages
from agentfly_core.pipeline.services import RolloutServices, rollout_services
from agentfly_core.runs.summary import Evaluation, evaluation
from agentfly_core.store.artifact import Pointer

Dataset = tuple[Experiment, Pointer]
"""An experiment whose data is one of evaluate.datasets, and that dataset."""


def further_datasets(stages: Stages, experiment: Experiment, policy: Pointer) -> dict[str, Dataset]:
    """The datasets of evaluate.datasets, prepared; raises ValueError for one that cannot be
    played.
    """
    datasets = dict[str, Dataset]()
    for name, dataset in experiment.settings.evaluate.datasets.items():
        there = experiment.on(experiment.settings.on(dataset))
        data = stages.prepare(there)
        stages.require_room(there, policy, data, ["test"])
        datasets[name] = there, data
    return datasets


def evaluated_policy(
    stages: Stages, experiment: Experiment, policy: Pointer, data: Pointer, logs: Path
) -> Evaluation:
    """How a policy does on the test split, and on each further dataset, with services of its own.

    Raises ValueError for a model or a dataset that does not fit.
    """
    stages.require_room(experiment, policy, data, ["test"])
    others = further_datasets(stages, experiment, policy)
    owner = f"evaluate-{policy.digest[:16]}"
    with rollout_services(experiment, policy, owner, logs) as services:
        return evaluated_everywhere(stages, experiment, services, policy, data, others, 0)


def evaluated_everywhere(
    stages: Stages,
    experiment: Experiment,
    services: RolloutServices,
    policy: Pointer,
    data: Pointer,
    others: Mapping[str, Dataset],
    step: int,
) -> Evaluation:
    """How the policy of a step does on the test split, and on each of `further_datasets`."""
    own = evaluated(stages, experiment, services, policy, data, "test", step)
    datasets = {}
    for name, (there, problems) in others.items():
        other = evaluated(stages, there, services, policy, problems, "test", step)
        datasets[name] = replace(other, split=name)
    return replace(own, datasets=datasets)


def evaluated(
    stages: Stages,
    experiment: Experiment,
    services: RolloutServices,
    policy: Pointer,
    data: Pointer,
    split: str,
    step: int,
) -> Evaluation:
    """How the policy of a step does on a held-out split."""
    shards = experiment.evaluation_shards(data, split)
    played = [
        stages.held_out(experiment, services, policy, data, split, shard, step) for shard in shards
    ]
    scored = stages.score(experiment, played, step, f"{split} after step {step}", None, 0, {})
    return evaluation(experiment.store, experiment, policy, split, played, scored)
