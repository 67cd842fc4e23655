"""All stages as Prefect tasks."""

from __future__ import annotations

from agentfly_core.pipeline.loop.stages import Stages
from tasks.stage import stage

PLAIN = Stages()
TASKS = Stages(
    version=stage("version the dataset with DVC", PLAIN.version),
    prepare=stage("prepare the dataset", PLAIN.prepare),
    base_model=stage("make the base model", PLAIN.base_model),
    require_room=stage("look whether prompts fit", PLAIN.require_room),
    demonstrate=stage("play demonstrations", PLAIN.demonstrate),
    choose=stage("choose demonstrations", PLAIN.choose),
    warm_start=stage("warm start round {number}", PLAIN.warm_start, retries=2),
    rollout=stage(
        "rollout step {episodes.sampling_round.step} shard {shard}", PLAIN.rollout, retries=3
    ),
    held_out=stage("evaluate {name} step {step} shard {shard}", PLAIN.held_out, retries=3),
    score=stage("score {what}", PLAIN.score),
    update=stage("update step {step}", PLAIN.update, retries=2),
    keep_state=stage("keep the learner state of step {step}", PLAIN.keep_state, retries=2),
    log_step=stage("log step {step}", PLAIN.log_step),
    look_at_health=stage("look at the health of step {step}", PLAIN.look_at_health),
    finish=stage("finish", PLAIN.finish),
)
