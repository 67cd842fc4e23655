"""What plays for a player: a sampler, the environments and the tokenizer."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from agentfly_core.config.experiment import step_named
from agentfly_core.inference.sampler import Sampler
from agentfly_core.inference.scripted import Scripted
from agentfly_core.pipeline import inputs
from agentfly_core.pipeline.services import (
    RolloutServices,
    chat_services,
    endpoint_of,
    frozen_speakers,
    sampler_service,
    tokenizer_of,
)
from agentfly_core.play.players import Model, Player, Script
from agentfly_core.rollout.event_loop import environment_loop
from agentfly_core.rollout.parts import template_of
from agentfly_core.runs.context import ExperimentContext
from agentfly_core.system.devices import held, numbered

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from agentfly_core.endpoints.service import ChatService

logger = logging.getLogger(__name__)


@contextmanager
def services(context: ExperimentContext, player: Player, logs: Path) -> Iterator[RolloutServices]:
    """What plays for the player, ready; policies hold the site's GPUs, and a model's sampler ends
    with the block.

    A script needs no weights, no GPU and no server.
    """
    if isinstance(player, Model):
        tokenizer = tokenizer_of(context, player.policy)
        chats = chat_services(context, endpoint_of(context.store, player.policy))
    else:
        tokenizer, _ = inputs.tokenizer(context)
        chats = chat_services(context)
    site = context.site
    frozen = any(map(step_named, context.science.agent.frozen.values()))
    plays = isinstance(player, Model) and not endpoint_of(context.store, player.policy)
    needed = site.device == "cuda" and (plays or frozen)
    gpus = numbered(site.sampler_gpus, site.locks) if needed else []
    with (
        held(gpus, f"episodes of {player.reference}", logger.warning),
        environment_loop(context.resolved.limits) as environments,
        _sampler(context, player, tokenizer, logs, chats) as sampler,
    ):
        speakers = frozen_speakers(context, tokenizer, chats)
        found = RolloutServices(sampler, environments, tokenizer, speakers)
        if isinstance(player, Model):
            found.load(context, player.policy, 0)
        yield found


@contextmanager
def _sampler(
    context: ExperimentContext,
    player: Player,
    tokenizer: PreTrainedTokenizerBase,
    logs: Path,
    chats: Mapping[str, ChatService],
) -> Iterator[Sampler]:
    if isinstance(player, Script):
        encode = partial(tokenizer.encode, add_special_tokens=False)
        stop = template_of(context.science.template, tokenizer).stop_tokens[0]
        yield Scripted(encode, stop, player.policy)
        return
    owner = f"play-{player.policy.digest[:16]}"
    with sampler_service(context, player.policy, owner, logs, chats) as sampler:
        yield sampler
