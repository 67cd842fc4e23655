"""Evaluate policies on held-out problems of the experiment, and on the datasets in
evaluate.datasets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from agentfly_core.experiment.experiment import Experiment
from agentfly_core.pipeline.loop.lookahead import side_by_side
from agentfly_core.pipeline.loop.stages import Stages
from agentfly_core.pipeline.services import rollout_services
from agentfly_core.pipeline.stages.rollout import HeldOutEpisodes
from agentfly_core.pipeline.workers.job import JobPlayer
from agentfly_core.runs.summary import Evaluation, Evaluations
from agentfly_core.store.artifact import Artifact, Pointer


@dataclass(frozen=True)
class Evaluator:
    """Evaluates policies on the dataset `data` of an experiment.

    Example: `Evaluator(Stages(), experiment, data).on_split(player, policy, "validation", 3)`.
    Here, the policy was published after step 3.

    `further` maps the names in evaluate.datasets to evaluators of these datasets. The method
    `with_datasets` makes these evaluators.
    """

    stages: Stages
    experiment: Experiment
    data: Pointer
    further: Mapping[str, Evaluator] = field(default_factory=dict)

    def with_datasets(self, policy: Pointer) -> Evaluator:
        """Prepare the datasets in evaluate.datasets, and return an evaluator with these datasets.

        Raises ValueError if a dataset cannot be used, for example because its prompts are too long
        for `policy`.
        """
        further, settings = dict[str, Evaluator](), self.experiment.settings
        for name, dataset in settings.evaluate.datasets.items():
            there = self.experiment.on(settings.on(dataset))
            further[name] = Evaluator(self.stages, there, self.stages.prepare(there))
            self.stages.require_room(there, policy, further[name].data, ["test"])
        return replace(self, further=further)

    def once(self, policy: Pointer, logs: Path) -> Evaluation:
        """Evaluate a policy on all test problems, or return its stored evaluation.

        The services are started only if no evaluation is stored. Raises ValueError if the model
        has fewer positions than `agent.max_model_len`, or if a dataset cannot be used.
        """
        self.stages.require_room(self.experiment, policy, self.data, ["test"])
        # by this owner name, a later evaluation of the policy finds and ends the services of a
        # killed evaluation
        complete, owner = self.with_datasets(policy), f"evaluate-{policy.digest[:16]}"
        if complete.is_stored(policy):
            stored = Evaluations(self.experiment)
            return stored.with_datasets(policy, stored.stored(policy, "test", self.data))
        with rollout_services(self.experiment, policy, owner, logs) as player:
            return complete.on_test(player, policy, 0)

    def is_stored(self, policy: Pointer) -> bool:
        """Whether all episodes and scores of a policy's evaluation are stored and undamaged.

        This includes the policy's evaluations on the further datasets of this evaluator.
        """
        own = Evaluations(self.experiment).is_complete(policy, "test", self.data)
        return own and all(other.is_stored(policy) for other in self.further.values())

    def on_test(self, player: JobPlayer, policy: Pointer, step: int) -> Evaluation:
        """Evaluate a policy on the test split of the dataset `self.data`, and on the test split of
        each dataset in `self.further`. The result contains all these evaluations.

        `step` is the step after which the policy was published.
        """
        own = self.on_split(player, policy, "test", step)
        datasets = {
            name: replace(other.on_split(player, policy, "test", step), split=name)
            for name, other in self.further.items()
        }
        return replace(own, datasets=datasets)

    def on_split(self, player: JobPlayer, policy: Pointer, split: str, step: int) -> Evaluation:
        """Evaluate a policy on a held-out split.

        `step` is the step after which the policy was published.
        """
        here, stages = self.experiment, self.stages
        episodes = HeldOutEpisodes(here, self.data, split)

        def play(shard: int) -> Artifact:
            return stages.held_out(player, policy, episodes, shard, step)

        shards = here.evaluation_shards(self.data, split)
        played = side_by_side(here.site.workers, play, shards)
        scored = stages.score(here, played, step, f"{split} after step {step}")
        return Evaluations(here).of(policy, split, played, scored)
