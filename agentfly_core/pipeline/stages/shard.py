"""One shard of episodes, played with the services of a session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agentfly_core.experiment.experiment import Experiment
from agentfly_core.pipeline.playing import play_shard, rollout_spec, watching
from agentfly_core.pipeline.services import RolloutServices
from agentfly_core.rollout.rules import EpisodeSpec
from agentfly_core.store.artifact import Pointer
from agentfly_core.store.stage_metrics import timing
from agentfly_core.store.store import Store


@dataclass(frozen=True)
class Shard:
    """Shard 0, 1, ... of the `episodes` of a stage: `Shard("rollout", 7, specs, 2)`."""

    stage: str
    step: int
    episodes: Sequence[EpisodeSpec]
    number: int

    def play(
        self,
        store: Store,
        experiment: Experiment,
        services: RolloutServices,
        policy: Pointer,
        version: int,
        folder: Path,
    ) -> dict[str, float]:
        """Leave the shard's trajectories and timings in `folder`; returns its metrics, among them
        `time/swap`, the seconds of loading the policy.

        `version` labels the sampled tokens. Raises as `play_shard`.
        """
        metrics: dict[str, float] = {}
        start = self.number * experiment.settings.rollout.shard
        mine = self.episodes[start : start + experiment.settings.rollout.shard]
        watch = watching(self.stage, self.step, start, len(self.episodes))
        with services.environments.turn:
            # within the turn: a template may use the one tokenizer, as another shard may now
            spec = rollout_spec(experiment, services.tokenizer, services.frozen)
            with timing(metrics, "time/swap"):
                services.load(store, policy, version)
            gates, sampler = experiment.settings.gates, services.sampler
            return metrics | play_shard(
                spec, gates, sampler, mine, folder, watch, services.environments
            )
