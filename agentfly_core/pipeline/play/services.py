"""Services for a player: sampler, environments, tokenizer and frozen speakers."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from agentfly_core.config.reference import RunPolicy
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.parts import template_of
from agentfly_core.inference.sampler import Sampler
from agentfly_core.inference.scripted import Scripted
from agentfly_core.inference.templates.text_encoder import reply_encoder
from agentfly_core.pipeline import inputs
from agentfly_core.pipeline.play.players import ModelPlayer, Player
from agentfly_core.pipeline.services import (
    RolloutServices,
    chat_services,
    endpoint_of,
    frozen_speakers,
    sampler_service,
    tokenizer_of,
)
from agentfly_core.rollout.event_loop import environment_loop
from agentfly_core.system.devices import held, numbered

logger = logging.getLogger(__name__)


@contextmanager
def services(experiment: Experiment, player: Player, logs: Path) -> Iterator[RolloutServices]:
    """Start the services of a player; policies hold the site's GPUs, scripts need no model."""
    store, site, settings = experiment.store, experiment.divided_site, experiment.settings
    speakers = settings.agent.speakers
    needs_gpu = any(isinstance(who, RunPolicy) for who in speakers.values())
    sampling: AbstractContextManager[Sampler]
    if isinstance(player, ModelPlayer):
        policy, owner = player.policy, f"play-{player.policy.digest[:16]}"
        tokenizer, endpoint = tokenizer_of(store, policy), endpoint_of(store, policy)
        chats = chat_services(store, site, speakers, endpoint)
        sampling = sampler_service(experiment, policy, owner, logs, chats)
        needs_gpu = needs_gpu or not endpoint
    else:
        tokenizer, _ = inputs.tokenizer(experiment)
        chats = chat_services(store, site, speakers)
        stop = template_of(settings.template, tokenizer).stop_tokens[0]
        sampling = nullcontext(Scripted(reply_encoder(tokenizer), stop, player.policy))
    on_gpu = needs_gpu and site.device == "cuda"
    gpus = numbered(site.sampler_gpus, site.locks) if on_gpu else []
    with (
        held(gpus, f"episodes of {player.reference}", logger.warning),
        environment_loop(experiment.whole.limits) as environments,
        sampling as sampler,
    ):
        experiment.require_speakers_unchanged()
        frozen = frozen_speakers(store, speakers, site, settings.dtype, tokenizer, chats)
        ready = RolloutServices(sampler, environments, tokenizer, frozen)
        if isinstance(player, ModelPlayer):
            ready.load(store, player.policy, 0)
        yield ready
