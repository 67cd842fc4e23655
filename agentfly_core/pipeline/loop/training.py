"""Train a run: prepare its data, warm-start its policy, train the policy in steps, and evaluate it.

Each step plays episodes, scores them, and updates the policy.
"""

import logging
import math
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from agentfly_core.config.reference import chat_file, is_scripted, run_step
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.pipeline.loop.evaluation import Evaluator
from agentfly_core.pipeline.loop.lookahead import ahead, one_thread, side_by_side
from agentfly_core.pipeline.loop.stages import Stages
from agentfly_core.pipeline.scoring import shard_scores
from agentfly_core.pipeline.services import TrainingServices, training_services
from agentfly_core.pipeline.stages.rollout import RoundEpisodes
from agentfly_core.pipeline.workers.job import DemonstrationJob, JobPlayer
from agentfly_core.records.ledger import used
from agentfly_core.records.problem_schedule import SamplingRound
from agentfly_core.records.run_record import Summary
from agentfly_core.records.trajectory import Scored
from agentfly_core.runs.run import Run
from agentfly_core.runs.summary import Evaluation, before_steps
from agentfly_core.store.artifact import Artifact, Pointer

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Training:
    """The training of a run: `Training(run, Path("logs"), Stages(), end_after(hours=6))`.

    `until` is a time of the monotonic clock. The step that is running at this time becomes the
    run's last step. `report` is called after changes of the run's files, for example after
    each step, and should return quickly.
    """

    run: Run
    logs: Path
    stages: Stages
    until: float
    report: Callable[[Run], None] = lambda run: None

    def complete(self) -> Summary:
        """Run all stages of the run that are not done yet, and return the content of its
        summary.json.
        """
        run, stages, experiment = self.run, self.stages, self.run.experiment
        data = stages.prepare(experiment)
        model = stages.base_model(experiment, run.parent)
        with training_services(experiment, model, run.uid, self.logs) as services:
            version = stages.version(experiment.name, experiment.settings, Path.cwd())
            run.remember_data(data, version)
            self.report(run)
            stages.require_room(experiment, model, data, run.settings.evaluate.splits)
            evaluator = Evaluator(stages, experiment, data).with_datasets(model)
            warm = warm_started(stages, experiment, services, model, data)
            start = warm[-1] if warm else model
            made = before_steps(data, model, warm, run.parent)
            self.report(run)
            evaluations = list[Evaluation]()
            if run.settings.goal:
                evaluations += [evaluator.on_test(services.player, start, run.settings.start_step)]
            run.remember_start(start, made)
            policy, run = self.improved(services, start, data)
            if run.settings.goal:
                evaluations += [evaluator.on_test(services.player, policy, run.settings.steps)]
        summary = stages.finish(run, evaluations)
        self.report(run)
        return summary

    def improved(
        self, services: TrainingServices, policy: Artifact, data: Artifact
    ) -> tuple[Artifact, Run]:
        """Train the remaining steps. Return the last policy and the run.

        If the time limit ended training, the returned run ends at the last trained step.
        """
        run, stages = self.run, self.stages
        self.report(run)
        remembers = run.settings.agent.remembers
        play = partial(episodes, stages, run, services.player, data)
        with ahead(run, play) as played_by:
            for step in run.settings.own_steps:
                played, scored = played_by(step, policy)
                here, memory = run.at(step), None
                if remembers:
                    memory = stages.remember(here, remembers, policy, scored, step)
                policy = stages.update(here, services, policy, scored, step, memory)
                stages.log_step(run, played, scored, policy, step)
                self.report(run)
                if run.evaluates(step):
                    # without the datasets in evaluate.datasets, which are played only before and
                    # after training
                    evaluator = Evaluator(stages, run.experiment, data)
                    evaluator.on_split(services.player, policy, "validation", step)
                    self.report(run)
                if time.monotonic() >= self.until and step < run.settings.steps:
                    logger.warning("The time limit has passed: step %s is the last step.", step)
                    # the step has become the last step only now, and its state may not be stored
                    # because of update.learner_every
                    stages.keep_state(run, services, step)
                    run = run.ending_at(step)
                    return policy, run
        return policy, run


def end_after(hours: float | None) -> float:
    """Return the time of the monotonic clock in `hours` hours from now, or infinity for None."""
    return math.inf if hours is None else time.monotonic() + 3600 * hours


def episodes(
    stages: Stages,
    run: Run,
    player: JobPlayer,
    data: Pointer,
    policy: Pointer,
    version: int,
    step: int,
) -> tuple[list[Artifact], Artifact]:
    """Play and score the episodes of a step. Return the artifacts of the rollouts and the scores.

    `version` is the step after which `policy` was published. Some problems cannot train the policy,
    for example because all their episodes have equal rewards. In at most `rollout.refills` further
    rounds, new problems are played instead of them. Episodes are played in batches (shards). One
    shard is scored while the next shard is played.
    """
    run = run.at(step)
    before = run.problems_before(step) if run.settings.night else {}
    rates = run.pass_rates(step) if run.settings.rollout.curriculum else {}
    schedule = run.experiment.schedule
    sampling_round = schedule.first_round(step, run.experiment.greedy, before, rates)
    experiment, played, scored, what = run.experiment, list[Artifact](), None, f"step {step}"
    grade = partial(shard_scores, experiment.whole.rewards, experiment.scores)
    # if the step was killed before, its stored shards are scored later, in the score stage
    begun = list[Future[list[Scored]]]()
    with one_thread("score") as thread:

        def play(sampling_round: SamplingRound) -> None:
            drawn = RoundEpisodes(run, data, sampling_round)

            def play_shard(shard: int) -> Artifact:
                was_there = run.store.holds(run.layout.step(step).rollout(shard))
                artifact = stages.rollout(player, policy, version, drawn, shard)
                # scores of a stored shard may be stored, too, and repeated scoring may use a judge
                # model
                if not was_there:
                    folder = run.store.open(artifact)
                    begun.append(thread.submit(copy_context().run, grade, folder))
                return artifact

            workers = run.experiment.site.workers
            played.extend(side_by_side(workers, play_shard, sampling_round.shards))

        def score(name: str, earlier: Artifact | None, number: int) -> Artifact:
            ready = [one for future in begun for one in future.result()]
            return stages.score(experiment, played, step, name, earlier, number, ready)

        play(sampling_round)
        for number in range(1, run.settings.rollout.refills + 1):
            scored = score(f"{what} round {number}", scored, number)
            lacking = schedule.missing(used(run.store.open(scored)))
            if not any(lacking.values()):
                break
            sampling_round = schedule.next_round(sampling_round, lacking)
            play(sampling_round)
        # the update and the reports always read the scores of round 0, even after several rounds
        return played, score(what, scored, 0)


def warm_started(
    stages: Stages,
    experiment: Experiment,
    services: TrainingServices,
    model: Artifact,
    data: Artifact,
) -> list[Artifact]:
    """Run the warm start. Return the demonstrations, then the policy after each warm-start round.

    The result is empty for a run without a warm start, and for a run that continues another run
    (the setting `fork`).
    """
    if (settings := experiment.settings.warm_start) is None or experiment.settings.fork:
        return []
    store, whole = experiment.store, experiment.whole
    # demonstrations from a run or a file are not played, so they read no memory
    memory = experiment.memory_of(model) if is_scripted(settings.demonstrations) else None
    stage_keys = StageKeys(experiment.settings)
    target = stage_keys.demonstrations(model, data, experiment.frozen, memory)
    if run_step(settings.demonstrations):
        demonstrations = stages.choose(store, settings, target, model, data)
    elif chat_file(settings.demonstrations):
        demonstrations = stages.read_chats(store, settings, target, whole, model, data)
    else:
        job = DemonstrationJob(target, Pointer(data.uri, data.digest), memory)
        demonstrations = stages.demonstrate(store, services.player, job)
    rounds = range(1, settings.rounds + 1)
    return [
        demonstrations,
        *(stages.warm_start(experiment, services, model, demonstrations, n) for n in rounds),
    ]
