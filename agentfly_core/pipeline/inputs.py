"""Make the inputs of an experiment.

The inputs are the dataset, the base model, and policies with a reference such as `run:demo@7`.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from pathlib import Path

from agentfly_core.authoring.event_loop import without_held_calls
from agentfly_core.config.parts import WarmStart
from agentfly_core.config.reference import (
    EndpointPolicy,
    LastPolicy,
    OwnNano,
    PolicyFile,
    RunPolicy,
    ScriptPolicy,
    WordPolicy,
    chat_file,
    model_reference,
)
from agentfly_core.config.reference import reference as policy_reference
from agentfly_core.experiment import keys
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.experiment.run_layout import run_records
from agentfly_core.experiment.run_policies import Parent, final_policy, last_policy, of_run
from agentfly_core.models import model_config
from agentfly_core.models.adapter_artifact import require_same_shape
from agentfly_core.models.known import require
from agentfly_core.models.type_names import PreTrainedTokenizerBase
from agentfly_core.pipeline.demonstrations import (
    HEARD,
    DemonstrationPlayer,
    Spans,
    boundless,
    spans_of,
    unshown,
)
from agentfly_core.pipeline.playing import rollout_spec
from agentfly_core.pipeline.produce import produce
from agentfly_core.pipeline.recorded_chats import ChatPlayer, recorded
from agentfly_core.pipeline.workers.job import Blame
from agentfly_core.pipeline.workers.samplers import ENDPOINT_FILE, tokenizer_of
from agentfly_core.records import dataset as datasets
from agentfly_core.records.dataset import split
from agentfly_core.records.trajectory import Problem
from agentfly_core.rollout.episode import RolloutSpec
from agentfly_core.runs.versioning import read_pointer
from agentfly_core.store.artifact import Artifact, ArtifactKey, Pointer
from agentfly_core.store.store import Store
from agentfly_core.system.files import write_json

QUARANTINE = Path("quarantine")


def dataset(experiment: Experiment) -> Artifact:
    """Return the dataset with its three splits. Make the dataset if it is not in the store.

    Raises ValueError if a setting of the dataset function is wrong, or if the function returns
    invalid data, such as too many bad rows.
    """

    def make(folder: Path) -> Mapping[str, float]:
        file = QUARANTINE / f"{experiment.name}.json"
        # `data_seed`, not `seed`, because the runs of a sweep over seeds share one dataset
        return datasets.prepare(
            experiment.settings.data, experiment.settings.data_seed, folder, file
        )

    return produce(experiment.store, StageKeys(experiment.settings).prepare(), make)


def base_model(experiment: Experiment, parent: Parent | None = None) -> Artifact:
    """Return the model from which training starts. Make the model if it is not in the store.

    If the run starts from the policy of another run (`parent`), return that policy. For a chat
    service (a model behind an API), the artifact contains the service's name and a byte tokenizer.
    With a warm start, the tokenizer of the model `nano` is made from demonstrations.

    Raises ValueError if the model or the chat service is missing, or if the parent's adapter does
    not fit the setting `adapter`. Raises GateClosed if too many demonstrations fail.
    """
    settings, store = experiment.settings, experiment.store
    if parent:
        require_same_shape(store, parent.policy, settings.adapter)
        return store.resolve(parent.policy)
    reference = model_reference(settings.model)
    if isinstance(reference, EndpointPolicy):
        from agentfly_core.models import nano  # takes seconds

        name = reference.name
        key = keys.endpoint(name, experiment.site.endpoint(name), "bytes")
        return _endpoint(store, key, name, nano.byte_tokenizer())
    data = dataset(experiment) if isinstance(reference, OwnNano) else None
    target = StageKeys(settings).base_model(data)
    assert target is not None

    def make(folder: Path) -> Mapping[str, float]:
        # imported only now, because these modules load torch, which takes seconds
        from agentfly_core.models import nano, pretrained
        from agentfly_core.pipeline.admission import require_learnable

        if data is None:
            pretrained.materialise(settings.model, folder, settings.dtype)
            require_learnable(folder, settings.dtype, experiment.site)
            return {}
        reads_bytes, training = nano.byte_tokenizer(), split(store.open(data), "train")
        programs = experiment.site.programs
        spec = rollout_spec(experiment.whole, experiment.mixture, reads_bytes, programs=programs)
        if warm_start := settings.warm_start:
            quotas, failed = settings.quotas, settings.gates.failed
            spans = _shown(boundless(spec), reads_bytes, training, warm_start, quotas, failed)
        else:
            spans = unshown(spec, reads_bytes, training, settings.quotas(HEARD))
        pieces = [nano.pieces(reads_bytes, conversation) for conversation in spans]
        learned = nano.tokenizer(pieces, settings.nano.atoms)
        longest = max(nano.POSITIONS, settings.agent.max_model_len)
        pretrained.write_untrained(learned, folder, settings.dtype, longest)
        return {}

    return produce(store, target, make)


def _shown(
    spec: RolloutSpec,
    tokenizer: PreTrainedTokenizerBase,
    problems: Sequence[Problem],
    warm_start: WarmStart,
    quotas: Callable[[int], Mapping[str, int]],
    failed: float,
) -> list[Spans]:
    """Return the tokens of the first demonstrations of a warm start, at most HEARD demonstrations.

    Each prompt, tool answer and reply is a span. Raises GateClosed if too many demonstrations fail.
    """
    if chat_file(warm_start.demonstrations):
        chats, _ = recorded(warm_start, ChatPlayer(spec, tokenizer))
        return spans_of([trajectory for _, trajectory in chats[:HEARD]])
    # with the seed 0, because the experiment's seed must not change the tokenizer; frozen speakers
    # are also played by the script
    player = DemonstrationPlayer(spec, tokenizer, problems, warm_start, quotas, 0, failed)
    return without_held_calls(lambda held: replace(player, blame=Blame.held(held)).spans())


def tokenizer(experiment: Experiment) -> tuple[PreTrainedTokenizerBase, str]:
    """Return the tokenizer of the experiment's model, and a digest of its source.

    For the model `nano` and for chat services (models behind an API), the model's artifact contains
    the tokenizer. A missing artifact is made first. For other models, no artifact is made.
    """
    store, settings = experiment.store, experiment.settings
    if parent := experiment.parent:
        return tokenizer_of(store, parent.policy), parent.policy.digest
    if isinstance(model_reference(settings.model), OwnNano | EndpointPolicy):
        model = base_model(experiment)
        return tokenizer_of(store, model), model.digest
    return model_config.tokenizer(settings.model), StageKeys(settings).model().key


def _endpoint(
    store: Store, target: ArtifactKey, name: str, tokenizer: PreTrainedTokenizerBase
) -> Artifact:
    """Publish a chat service (a model behind an API) as a policy.

    The policy's folder contains the service's name and a tokenizer.
    """

    def make(folder: Path) -> Mapping[str, float]:
        tokenizer.save_pretrained(folder)
        write_json(folder / ENDPOINT_FILE, {"name": name})
        return {}

    return produce(store, target, make)


def _own_policy(store: Store, name: str, experiment: str) -> Artifact:
    """Return the last policy of the run `name`. `experiment` is the name of the run's experiment.

    Raises ValueError if the run does not exist or has not published a policy. The error message
    suggests the newest run of the experiment that has a policy, because an edit of settings or code
    changes the default name of the run.
    """
    if policy := last_policy(store, name):
        return policy
    own = (run for run in run_records(store) if run["experiment"] == experiment)
    for run in sorted(own, key=itemgetter("created_ms"), reverse=True):
        if last_policy(store, run["name"]):
            raise ValueError(
                f"The current settings and code belong to the run {name!r}, which has no policy in "
                f"{store.uri} yet. Train this run, or use the newest policy of {experiment}: "
                f"--policy run:{run['name']}"
            )
    return final_policy(store, name)  # raises


def policy_named(
    experiment: Experiment, named: str, model: Callable[[Experiment], Pointer]
) -> Pointer:
    """Return the policy with the reference `named`. The policy may be a chat service.

    If `named` is empty, return the last policy of the experiment's run. In references such as
    `run:demo@0`, step 0 means the policy before step 1. The reference "base" means the model or
    policy from which the experiment starts. `model` is a function that makes a base model: the
    experiment's model, or the model `named` (a folder, a hub id, `nano:NAME` or `package:NAME`).

    Raises ValueError if the policy is missing, or if `named` is a function, such as "oracle".
    """
    store = experiment.store
    if not named:
        return _own_policy(store, experiment.run_name("", False), experiment.name)
    match policy_reference(named, store.names("runs")):
        case RunPolicy() | LastPolicy() as policy:
            return of_run(store, policy, "policy").policy
        case PolicyFile(path):
            if not os.path.isfile(path):
                raise ValueError(
                    f"The policy file {path!r} does not exist. Expected a file such as "
                    "results/EXPERIMENT/policy.json."
                )
            return read_pointer(Path(path))
        case EndpointPolicy(name):
            loaded, source = tokenizer(experiment)
            key = keys.endpoint(name, experiment.site.endpoint(name), source)
            return _endpoint(store, key, name, loaded)
        case WordPolicy.BASE:
            parent = experiment.parent
            return parent.policy if parent else model(experiment)
        case ScriptPolicy() | WordPolicy():
            raise ValueError(
                f"Got the policy {named!r}, which is a function; expected a policy with weights. "
                f"To play the function: `agentfly play EXPERIMENT --split test --policy {named}`."
            )
        case other_model:
            require(other_model)
            # without `fork`, because a fork takes its model from its origin and ignores `model`
            settings = experiment.settings.model_copy(update={"model": named, "fork": None})
            return model(experiment.on(settings))
