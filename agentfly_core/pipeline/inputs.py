"""What an experiment starts from: its dataset, its base model, and what a reference names."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from agentfly_core.config.reference import (
    BasePolicy,
    EndpointPolicy,
    LastPolicy,
    OraclePolicy,
    OwnNano,
    PolicyFile,
    RandomPolicy,
    RunPolicy,
    ScriptPolicy,
    model_reference,
)
from agentfly_core.config.reference import reference as policy_reference
from agentfly_core.experiment import keys
from agentfly_core.experiment.context import ExperimentContext, Resolved, final_policy, of_run
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.models import reference
from agentfly_core.models.known import require
from agentfly_core.pipeline.playing import shown, unshown
from agentfly_core.pipeline.produce import produce
from agentfly_core.pipeline.services import ENDPOINT_FILE, tokenizer_of
from agentfly_core.records import dataset as datasets
from agentfly_core.records.dataset import split
from agentfly_core.records.trajectory import Problem
from agentfly_core.rollout.event_loop import environment_loop
from agentfly_core.runs import dvc_pointer
from agentfly_core.runs.run import name_of
from agentfly_core.store.store import Artifact, Pointer
from agentfly_core.system.files import write_json

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

QUARANTINE = Path("quarantine")


def dataset(context: ExperimentContext) -> Artifact:
    """The experiment's dataset: three splits; raises ValueError for data that cannot be used."""

    def make(folder: Path) -> Mapping[str, float]:
        file = QUARANTINE / f"{context.experiment}.json"
        return datasets.prepare(context.science.data, context.science.data_seed, folder, file)

    return produce(context.store, StageKeys(context.science).prepare(), make)


def base_model(context: ExperimentContext) -> Artifact:
    """The model of a reference that names no run.

    Raises ValueError for a reference that names no model, and GateClosed where the demonstrations
    fail from which `nano` is made.
    """
    science, store = context.science, context.store
    data = dataset(context) if isinstance(model_reference(science.model), OwnNano) else None
    target = StageKeys(science).base_model(store)
    assert target is not None

    def make(folder: Path) -> Mapping[str, float]:
        if data is None:
            reference.materialise(science.model, folder, science.dtype)
        else:
            _make_nano(context.resolved, split(store.open(data), "train"), folder)
        return {}

    return produce(store, target, make)


def _make_nano(resolved: Resolved, training: Sequence[Problem], folder: Path) -> None:
    """Leave `nano`, made for the training problems and their demonstrations, in `folder`."""
    from agentfly_core.models import own_nano  # loads torch, which takes seconds

    science, reads_bytes = resolved.science, own_nano.byte_tokenizer()
    if science.warm_start:
        with environment_loop(resolved.limits) as environments:
            spans = shown(resolved, reads_bytes, training, environments)
    else:
        spans = unshown(resolved, reads_bytes, training)
    pieces = [own_nano.pieces(reads_bytes, conversation) for conversation in spans]
    longest = science.agent.max_model_len
    own_nano.make(pieces, science.nano.atoms, longest, folder, science.dtype)


def tokenizer(context: ExperimentContext) -> tuple[PreTrainedTokenizerBase, str]:
    """The tokenizer of the experiment's model, without its weights where they are not needed for
    it, and a digest of what it comes from.
    """
    if context.parent:
        return tokenizer_of(context.store, context.parent.policy), context.parent.policy.digest
    if isinstance(model_reference(context.science.model), OwnNano):
        model = base_model(context)
        return tokenizer_of(context.store, model), model.digest
    name = context.science.model
    return reference.tokenizer(name), StageKeys(context.science).model().key


def endpoint(context: ExperimentContext, name: str) -> Artifact:
    """A chat service of the site as a policy, with the tokenizer of the experiment's model; raises
    ValueError for one that the site does not name.
    """
    settings = context.site.endpoint(name)
    tokens, source = tokenizer(context)
    target = keys.endpoint(name, settings, source)

    def make(folder: Path) -> Mapping[str, float]:
        tokens.save_pretrained(folder)
        write_json(folder / ENDPOINT_FILE, {"name": name})
        return {}

    return produce(context.store, target, make)


def policy_named(
    context: ExperimentContext, named: str, model: Callable[[ExperimentContext], Pointer]
) -> Pointer:
    """The policy that a reference names, a chat service too; by default the run's last.

    `model` gives the base model of an experiment whose model is that reference. Step 0 is the
    policy that step 1 starts from. Raises ValueError for a policy that is not there, and for one
    whose replies a function gives.
    """
    if not named:
        return final_policy(
            context.store,
            name_of(context, "", False),
        )
    match policy_reference(named, context.store.names("runs")):
        case RunPolicy() | LastPolicy() as policy:
            return of_run(context.store, policy, "policy").policy
        case PolicyFile(path):
            if not os.path.isfile(path):
                raise ValueError(
                    f"There is no file {path!r}; expected one like results/EXPERIMENT/policy.json."
                )
            return dvc_pointer.read(Path(path))
        case EndpointPolicy(name):
            return endpoint(context, name)
        case BasePolicy():
            return context.parent.policy if context.parent else model(context)
        case ScriptPolicy() | OraclePolicy() | RandomPolicy():
            raise ValueError(
                f"Got the policy {named!r}, a function that gives the replies; expected one with "
                f"weights. `agentfly play EXPERIMENT --split test --policy {named}` plays this one."
            )
        case other_model:
            require(other_model)
            science = context.science.model_copy(update={"model": named, "fork": None})
            return model(context.on(science))
