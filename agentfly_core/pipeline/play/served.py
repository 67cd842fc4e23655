"""The policy of a run, served by OpenAI's API."""

import secrets
from collections.abc import Callable
from pathlib import Path

from agentfly_core.authoring.event_loop import run
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.gateway.server import served_policy
from agentfly_core.gateway.serving import ServedPolicy, endless
from agentfly_core.pipeline.play.player_services import services_of
from agentfly_core.pipeline.play.players import ModelPlayer
from agentfly_core.pipeline.playing import rollout_spec
from agentfly_core.pipeline.workers.local import LocalServices
from agentfly_core.records.trajectory import Problem
from agentfly_core.rollout.frozen import cast
from agentfly_core.rollout.rules import EpisodeSpec

Ready = Callable[[str, str], None]
"""Gets the base URL and the API key of a server that is ready."""


def serve(experiment: Experiment, player: ModelPlayer, port: int, logs: Path, ready: Ready) -> None:
    """Serve a policy on this machine until it is interrupted, with the template, the limits of
    tokens and the speakers of its experiment.

    Raises ValueError for a taken port, and SamplerLost.
    """
    with services_of(experiment, player, logs) as services:
        run(_served(experiment, player, services, port, ready))


async def _served(
    experiment: Experiment, player: ModelPlayer, services: LocalServices, port: int, ready: Ready
) -> None:
    settings, key = experiment.settings, secrets.token_hex(16)
    spec = rollout_spec(experiment.whole, {}, services.tokenizer, services.frozen)
    temperature = settings.evaluate.temperature
    begin = EpisodeSpec(
        Problem("served", ""), 0, "served", "evaluation", temperature, settings.seed
    )
    speakers = getattr(experiment.whole.agent, "speakers", {})
    async with cast(services.sampler, services.frozen, 0) as here:
        policy = ServedPolicy(player.reference, endless(spec), here, begin, speakers)
        try:
            async with served_policy(policy, key, port) as url:
                ready(url, key)
                await policy.lost
        except OSError as error:
            raise ValueError(f"The port {port} cannot be used: {error}. Choose another.") from error
