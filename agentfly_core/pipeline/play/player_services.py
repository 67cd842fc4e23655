"""Start the services for playing episodes: the samplers of replies, and the environments."""

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from agentfly_core.config.reference import RunPolicy
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.inference.sampler import Sampler
from agentfly_core.models.type_names import PreTrainedTokenizerBase
from agentfly_core.pipeline import inputs
from agentfly_core.pipeline.play.players import ModelPlayer, Player
from agentfly_core.pipeline.playing import scripted
from agentfly_core.pipeline.workers.local import LocalServices
from agentfly_core.pipeline.workers.samplers import Samplers, endpoint_of, tokenizer_of
from agentfly_core.rollout.resources import resources_for
from agentfly_core.system.devices import held, numbered

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PlayerServices:
    """Starts the services with which `player` plays episodes: the samplers and the environments."""

    experiment: Experiment
    player: Player

    @contextmanager
    def started(self, logs: Path) -> Iterator[LocalServices]:
        """Start the services, and stop the services at the end of the `with` block.

        GPUs are reserved only if the player or another speaker is a model with weights.
        Functions and chat services need no GPU.
        """
        experiment, player, site = self.experiment, self.player, self.experiment.site
        store, speakers = experiment.store, experiment.settings.agent.speakers
        needs_gpu = any(isinstance(who, RunPolicy) for who in speakers.values())
        serving: AbstractContextManager[str] = nullcontext("")
        samplers = Samplers(experiment, "")
        if isinstance(player, ModelPlayer):
            samplers = Samplers(experiment, endpoint_of(store, player.policy))
            serving = samplers.server(player.policy, f"play-{player.policy.digest[:16]}", logs)
            needs_gpu = needs_gpu or not samplers.endpoint
        gpus = numbered(site.sampler_gpus if needs_gpu else (), site.locks)
        with (
            # reserved before the server starts, because the server takes all memory that is left
            held(gpus, f"episodes of {player.reference}", logger.warning),
            resources_for(experiment.whole.limits) as resources,
            serving as server,
        ):
            tokenizer, sampler = self._sampler(server, samplers)
            ready = LocalServices(sampler, resources, tokenizer, samplers.frozen(tokenizer))
            if isinstance(player, ModelPlayer):
                ready.load(store, player.policy, 0)
            yield ready

    def _sampler(self, server: str, samplers: Samplers) -> tuple[PreTrainedTokenizerBase, Sampler]:
        experiment, player = self.experiment, self.player
        if isinstance(player, ModelPlayer):
            tokenizer = tokenizer_of(experiment.store, player.policy)
            return tokenizer, samplers.served(server) if server else samplers.here(tokenizer)
        tokenizer, _ = inputs.tokenizer(experiment)
        template = experiment.settings.template.make(tokenizer=tokenizer)
        return tokenizer, scripted(player.policy, tokenizer, template)
