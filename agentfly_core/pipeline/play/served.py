"""Serve the policy of a run through OpenAI's API."""

import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from agentfly_core.authoring.event_loop import run
from agentfly_core.config.reference import run_policy
from agentfly_core.config.site import Site
from agentfly_core.experiment.checks import check_place
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.run_policies import of_run
from agentfly_core.gateway.server import HOST, serving
from agentfly_core.gateway.serving import ServedPolicy, endless
from agentfly_core.pipeline.play.player_services import PlayerServices
from agentfly_core.pipeline.play.players import ModelPlayer
from agentfly_core.pipeline.playing import rollout_spec
from agentfly_core.pipeline.workers.local import LocalServices
from agentfly_core.records.trajectory import Problem
from agentfly_core.rollout.frozen import cast
from agentfly_core.rollout.rules import EpisodeSpec
from agentfly_core.runs.listing import run_named
from agentfly_core.runs.run import experiment_of_run, known_run
from agentfly_core.store.store import Store

Ready = Callable[[str, str], None]
"""A function that is called when the server is ready, with the base URL and the API key."""


@dataclass(frozen=True)
class PolicyToServe:
    """A policy to serve.

    The template, the token limits and the agent's speakers come from `experiment`.
    """

    experiment: Experiment
    player: ModelPlayer
    port: int

    @classmethod
    def of_run(cls, store: Store, reference: str, site: Site, port: int) -> Self:
        """Prepare to serve the policy of a run, such as `run:demo` or `run:demo@7`.

        `site` contains the settings of this machine. Raises ValueError if the policy is missing.
        """
        wanted = run_policy(run_named(store, reference))
        named = of_run(store, wanted, "policy")
        experiment = replace(experiment_of_run(known_run(store, named.run), store), site=site)
        check_place(experiment.settings, site)
        return cls(experiment, ModelPlayer(str(wanted), named.policy), port)

    def serve(self, logs: Path, ready: Ready) -> None:
        """Serve the policy on this machine until the process is interrupted.

        Raises ValueError if the port cannot be used, and ServiceLost if the sampler dies.
        """
        with PlayerServices(self.experiment, self.player).started(logs) as services:
            run(self._serve(services, ready))

    async def _serve(self, services: LocalServices, ready: Ready) -> None:
        # requests need a key, because other users of this machine can reach the port
        whole, key = self.experiment.whole, secrets.token_hex(16)
        temperature, seed = self.experiment.settings.evaluate.temperature, whole.settings.seed
        spec = endless(rollout_spec(whole, {}, services.tokenizer, services.frozen))
        begin = EpisodeSpec(Problem("served", ""), 0, "served", "evaluation", temperature, seed)
        speakers = getattr(whole.agent, "speakers", {})
        async with cast(services.sampler, services.frozen, 0) as here:
            policy = ServedPolicy(self.player.reference, spec, here, begin, speakers)
            try:
                listener = socket.create_server((HOST, self.port))
                async with serving(policy, "/v1", listener, key) as url:
                    ready(url, key)
                    await policy.lost
            except OSError as error:
                raise ValueError(
                    f"The port {self.port} cannot be used: {error}. Choose another port with "
                    "--port."
                ) from error
