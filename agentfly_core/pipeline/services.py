"""The services of a running command, such as the sampler, the workers and the learner.

They are started once, and then passed to the stages of the command.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from agentfly_core.authoring.author_part import kinds_needed
from agentfly_core.authoring.event_loop import run
from agentfly_core.config.site import Site
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.task import Task
from agentfly_core.models import adapter_artifact
from agentfly_core.models.model_config import require_trainable
from agentfly_core.models.type_names import PreTrainedTokenizerBase
from agentfly_core.pipeline.workers.job import JobPlayer
from agentfly_core.pipeline.workers.local import LocalPlayer, LocalServices
from agentfly_core.pipeline.workers.pool import worker_pool
from agentfly_core.pipeline.workers.samplers import Samplers, class_of, endpoint_of, tokenizer_of
from agentfly_core.rollout.resources import ResourceManager, resources_for
from agentfly_core.rollout.shard import LEASE_SECONDS
from agentfly_core.store.artifact import Pointer
from agentfly_core.store.store import Store
from agentfly_core.system.service import new_address, supervised
from agentfly_core.training import client
from agentfly_core.training.checkpointing import AsyncCheckpointer


@dataclass(frozen=True, slots=True)
class TrainingServices:
    """The services of a training run: `player` plays episodes, and `started` is the learner.

    `started` is None if the run trains no weights.
    """

    player: JobPlayer
    started: AsyncCheckpointer | None

    @property
    def learner(self) -> AsyncCheckpointer:
        """The learner (`started`). Raises AssertionError if the run trains no weights."""
        assert self.started is not None, "update: none starts no learner"
        return self.started


@contextmanager
def training_services(
    experiment: Experiment, model: Pointer, owner: str, logs: Path, scripted: bool = False
) -> Iterator[TrainingServices]:
    """Start the services of training. `owner` is the uid of the run.

    The services are stopped at the end of the `with` block. With `scripted`, no sampler server is
    started. For example, the flow `warm-start` needs no sampler server.
    """
    store, site, update = experiment.store, experiment.divided_site, experiment.settings.update
    learning: AbstractContextManager[AsyncCheckpointer | None] = nullcontext()
    if update.weights or experiment.settings.warm_start:
        learning = learner_service(store, model, update.share_prefixes, site, owner, logs)
    with rollout_services(experiment, model, owner, logs, scripted) as player, learning as learner:
        yield TrainingServices(player, learner)


@contextmanager
def rollout_services(
    experiment: Experiment, model: Pointer, owner: str, logs: Path, scripted: bool = False
) -> Iterator[JobPlayer]:
    """Start the sampler and the workers. They are stopped at the end of the `with` block.

    The sampler can load `model` and the policies that are trained from it. With `scripted`, no
    sampler server is started. Raises ValueError if the policy of a frozen (untrained) speaker is
    missing, or if its tokenizer differs from the tokenizer of `model`.
    """
    samplers = Samplers(experiment, endpoint_of(experiment.store, model))
    serving = nullcontext("") if scripted else samplers.server(model, owner, logs)
    with serving as server:
        tokenizer = tokenizer_of(experiment.store, model)
        playing = (
            worker_pool(samplers, model, class_of(tokenizer), server, owner, logs)
            if experiment.site.workers
            else local_player(samplers, tokenizer, server)
        )
        with playing as player:
            yield player


@contextmanager
def local_player(
    samplers: Samplers, tokenizer: PreTrainedTokenizerBase, server: str
) -> Iterator[LocalPlayer]:
    """Start a LocalPlayer, which plays episodes in this process, and start its environments.

    `server` is the address of the vLLM server, or "" to sample without a server. At the end of the
    `with` block, episodes that still run in another thread are cancelled.
    """
    experiment = samplers.experiment
    with environments_here(experiment.whole) as resources:
        sampler = samplers.served(server) if server else samplers.here(tokenizer)
        frozen = samplers.frozen(tokenizer)
        player = LocalPlayer(experiment, LocalServices(sampler, resources, tokenizer, frozen))
        try:
            yield player
        finally:
            player.end()


@contextmanager
def environments_here(task: Task) -> Iterator[ResourceManager]:
    """Start the environments of an experiment in this process.

    The environments for one shard (batch of episodes) are started first. Further environments are
    started when they are needed. Raises RuntimeError if an environment is still in use when the
    `with` block ends.
    """
    rollout = task.settings.rollout
    size = min(rollout.shard, rollout.problems * rollout.group_size)
    with resources_for(task.limits) as resources:
        run(resources.warm(kinds_needed(task.parts), size, LEASE_SECONDS))
        yield resources


@contextmanager
def learner_service(
    store: Store, model: Pointer, share_prefixes: bool, site: Site, owner: str, logs: Path
) -> Iterator[AsyncCheckpointer]:
    """Start the learner. It is stopped at the end of the `with` block.

    Before the learner is stopped, the last checkpoint is saved completely. Raises ValueError if
    the model cannot be trained.
    """
    if config := adapter_artifact.config_of(store, model):
        require_trainable(config, share_prefixes)
    address = new_address("learner")
    command, environment = client.launch(str(address), site)
    with supervised(
        "learner", command, environment, address, logs / "learner.log", owner
    ) as service:
        checkpointer = AsyncCheckpointer(client.DeepSpeedLearner(service))
        try:
            yield checkpointer
        finally:
            checkpointer.wait()
