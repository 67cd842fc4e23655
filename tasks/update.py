"""Changing weights: one update of the policy, its learner state first, the policy last."""

from __future__ import annotations

from agentfly_core import slots, updating
from agentfly_core.run import Run
from agentfly_core.service import Service
from agentfly_core.store import Artifact
from agentfly_core.warm import learner, rest
from tasks.stage import Made, reused, stage


@stage("update step {step}", retries=2)
def update(run: Run, policy: Artifact, scored: Artifact, sampler: Service, service: Service, step: int) -> Made:
    """Publish policy number `step`; updates whose learner state was not kept are run again first."""
    slot = slots.policy(run.science, run.name, policy, scored, step)
    if found := run.store.find(slot):
        return reused(found)
    updating.require_space(run.lab, policy)
    rest(sampler, run.lab)
    worker = learner(service)
    for earlier in updating.missing_steps(run, worker.label(), step):
        worker.update(updating.step_job(run, earlier), updating.watching("replay", earlier))
    keep = step % run.science.update.learner_every == 0 or step == run.science.steps
    job = updating.step_job(run, step)
    made = updating.publish(run.store, worker, job, policy, slot, keep, updating.watching("update", step))
    updating.retain(run, step)
    return made
