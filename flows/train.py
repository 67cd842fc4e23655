"""Training: data, warm start, then step after step of rollout, score and update, with held-out
evaluation around it.
"""

from __future__ import annotations

import logging
from functools import partial

from prefect import flow, runtime

from agentfly_core.pipeline.services import TrainingServices, training_services
from agentfly_core.records.dataset import splits_played
from agentfly_core.records.ledger import used
from agentfly_core.records.problem_schedule import SamplingRound, first_round, missing, next_round
from agentfly_core.records.run_record import Summary
from agentfly_core.runs.run import Run
from agentfly_core.runs.summary import stages_before
from agentfly_core.store.store import Artifact
from agentfly_core.system.hardware import imports_frozen
from flows.deadline import Deadline
from flows.evaluate import evaluated, evaluated_everywhere, further_datasets
from flows.lookahead import ahead
from flows.parameters import Another, ExperimentName, Hours, Overrides, RunName, SiteName, StoreUri
from flows.run_pages import show_summary
from flows.session import Session, session
from flows.shard_scoring import scoring_shards
from flows.warm_start import warm_started
from tasks.finish import finish
from tasks.model import base_model
from tasks.prepare import prepare, version
from tasks.rollout import RoundEpisodes, require_room, rollout
from tasks.score import score
from tasks.step_metrics import log_step, look_at_health
from tasks.update import keep_state, update

logger = logging.getLogger(__name__)


def _title() -> str:
    given = runtime.flow_run.parameters
    return str(given["run"] or given["experiment"])


@flow(name="train", flow_run_name=_title)
def train(
    experiment: ExperimentName = "quickstart",
    run: RunName = "",
    overrides: Overrides = [],  # noqa: B006
    new: Another = False,
    site: SiteName = "local",
    store: StoreUri = "",
    hours: Hours = None,
) -> Summary:
    """Train an agent: start the run, or continue it from disk.

    The step during which `hours` are over is the run's last one, as if no more had been asked for.
    """
    until = Deadline.after(hours)
    with session(experiment, run, overrides, new, site, store) as here:
        data = prepare(here.context)
        model = base_model(here.context, here.run.parent)
        with training_services(here.context, model, here.run.uid, here.logs) as services:
            here.run.remember_data(data, version(here.context))
            here.reporter.data(data)
            require_room(here.context, model, data, *splits_played(here.run.science))
            others = further_datasets(here.context, model)
            warm = warm_started(here.context, services, model, data)
            start = warm[-1] if warm else model
            made = stages_before(data, model, warm, here.run.parent)
            here.reporter.made(made)
            first = here.run.science.start_step
            before = evaluated_everywhere(here.context, services, start, data, others, first)
            here.reporter.evaluation(before, first)
            policy, here = improved(here, services, start, data, until)
            last = here.run.science.steps
            after = evaluated_everywhere(here.context, services, policy, data, others, last)
            here.reporter.evaluation(after, last)
        summary = finish(here.run, made, before, after, here.reporter.mlflow_run_id())
        here.reporter.end(policy, summary, after.time_ms)
        show_summary(here.context, summary)
    return summary


def improved(
    here: Session, services: TrainingServices, policy: Artifact, data: Artifact, until: Deadline
) -> tuple[Artifact, Session]:
    """The policy after all steps, and the session with those that there were time for; one step is
    rollout, score, update.
    """
    run = here.run
    run.remember_start(policy)
    with imports_frozen(), ahead(run, partial(episodes, run, services, data)) as played_by:
        for step in run.science.own_steps:
            played, scored = played_by(step, policy)
            policy = update(run.at(step), services, policy, scored, step)
            log_step(run, played, scored, policy, step)
            here.reporter.step(step)
            look_at_health(run, step)
            if run.evaluates(step):
                here.reporter.evaluation(
                    evaluated(run.context, services, policy, data, "validation", step), step
                )
            if until.passed and step < run.science.steps:
                logger.warning("The time is over: step %s is the last one.", step)
                keep_state(run, services, step)
                return policy, here.ending_at(step)
    return policy, here


def episodes(
    run: Run, services: TrainingServices, data: Artifact, policy: Artifact, version: int, step: int
) -> tuple[list[Artifact], Artifact]:
    """A step's rollouts and their scores; in `rollout.refills` rounds, problems that teach nothing
    are replaced. A shard is scored while the next one is played.
    """
    run = run.at(step)
    before = run.problems_before(step) if run.science.night else {}
    known = run.pass_rates(step) if run.science.rollout.curriculum else {}
    sampling_round = first_round(run.science, step, run.resolved.greedy, before, known)
    context, played, scored = run.context, list[Artifact](), None
    with scoring_shards(context) as scoring:

        def play(sampling_round: SamplingRound) -> None:
            drawn = RoundEpisodes(run, data, sampling_round)
            for shard in sampling_round.shards:
                was_there = run.store.holds(run.layout.step(step).rollout(shard))
                played.append(rollout(services, policy, version, drawn, shard))
                if not was_there:  # what was may have its scores, and a reward may ask a model
                    scoring.begin(played[-1])

        play(sampling_round)
        for number in range(1, run.science.rollout.refills + 1):
            what = f"step {step} round {number}"
            scored = score(context, played, step, what, scored, number, scoring.shards())
            lacking = missing(run.science, used(run.store.open(scored), run.science.tasks))
            if not any(lacking.values()):
                break
            sampling_round = next_round(run.science, sampling_round, lacking)
            play(sampling_round)
        return played, score(context, played, step, f"step {step}", scored, shards=scoring.shards())
