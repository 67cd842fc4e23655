"""The stage functions that loops call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agentfly_core.config.experiment import Settings, WarmStart
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.run_policies import Parent
from agentfly_core.pipeline import inputs, scoring
from agentfly_core.pipeline.scoring import ScoredShard
from agentfly_core.pipeline.services import RolloutServices, TrainingServices
from agentfly_core.pipeline.stages import (
    finish,
    held_out,
    policy_update,
    prepare,
    rollout,
    room,
    step_metrics,
    warm_start,
)
from agentfly_core.pipeline.stages.rollout import RoundEpisodes
from agentfly_core.records.run_record import Summary
from agentfly_core.runs.run import Run
from agentfly_core.runs.summary import Evaluation, StagesBefore
from agentfly_core.runs.versioning import dataset_version
from agentfly_core.store.artifact import Artifact, ArtifactKey, Pointer
from agentfly_core.store.store import Store

Scores = Callable[
    [
        Experiment,
        Sequence[Artifact],
        int,
        str,
        Artifact | None,
        int,
        Mapping[Artifact, ScoredShard],
    ],
    Artifact,
]


@dataclass(frozen=True)
class Stages:
    """The functions of all stages: plain by default; flows replace each by a Prefect task of it."""

    version: Callable[[str, Settings, Path], str] = dataset_version
    prepare: Callable[[Experiment], Artifact] = prepare.prepare
    base_model: Callable[[Experiment, Parent | None], Artifact] = inputs.base_model
    require_room: Callable[[Experiment, Pointer, Pointer, Sequence[str]], None] = room.require_room
    demonstrate: Callable[[Experiment, TrainingServices, Artifact, Artifact], Artifact] = (
        warm_start.demonstrate
    )
    choose: Callable[[Store, WarmStart, ArtifactKey, Artifact, Artifact], Artifact] = (
        warm_start.choose
    )
    warm_start: Callable[[Experiment, TrainingServices, Artifact, Artifact, int], Artifact] = (
        warm_start.warm_start
    )
    rollout: Callable[[RolloutServices, Pointer, int, RoundEpisodes, int], Artifact] = (
        rollout.rollout
    )
    held_out: Callable[[Experiment, RolloutServices, Pointer, Pointer, str, int, int], Artifact] = (
        held_out.held_out
    )
    score: Scores = scoring.score
    update: Callable[[Run, TrainingServices, Artifact, Artifact, int], Artifact] = (
        policy_update.update
    )
    keep_state: Callable[[Run, TrainingServices, int], None] = policy_update.keep_state
    log_step: Callable[[Run, Sequence[Artifact], Artifact, Artifact, int], None] = (
        step_metrics.log_step
    )
    look_at_health: Callable[[Run, int], None] = step_metrics.look_at_health
    finish: Callable[[Run, StagesBefore, Evaluation, Evaluation], Summary] = finish.finish
