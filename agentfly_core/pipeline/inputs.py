"""What an experiment starts from: its dataset, its base model, and what a reference names."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from agentfly_core.config.reference import (
    EndpointPolicy,
    LastPolicy,
    OwnNano,
    PolicyFile,
    RunPolicy,
    ScriptPolicy,
    WordPolicy,
    model_reference,
)
from agentfly_core.config.reference import reference as policy_reference
from agentfly_core.experiment import keys
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.experiment.run_policies import final_policy, of_run
from agentfly_core.models import reference
from agentfly_core.models.known import require
from agentfly_core.pipeline.demonstrations import HEARD, DemonstrationPlayer, boundless, unshown
from agentfly_core.pipeline.playing import rollout_spec
from agentfly_core.pipeline.produce import produce
from agentfly_core.pipeline.services import ENDPOINT_FILE, tokenizer_of
from agentfly_core.records import dataset as datasets
from agentfly_core.records.dataset import split
from agentfly_core.records.trajectory import Problem
from agentfly_core.rollout.event_loop import environment_loop
from agentfly_core.runs import dvc_pointer
from agentfly_core.store.store import Artifact, Pointer
from agentfly_core.system.files import write_json

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

QUARANTINE = Path("quarantine")


def dataset(experiment: Experiment) -> Artifact:
    """The experiment's dataset: three splits; raises ValueError for data that cannot be used."""

    def make(folder: Path) -> Mapping[str, float]:
        file = QUARANTINE / f"{experiment.name}.json"
        return datasets.prepare(
            experiment.settings.data, experiment.settings.data_seed, folder, file
        )

    return produce(experiment.store, StageKeys(experiment.settings).prepare(), make)


def base_model(experiment: Experiment) -> Artifact:
    """The model of a reference that names no run.

    Raises ValueError for a reference that names no model, and GateClosed where the demonstrations
    fail from which `nano` is made.
    """
    settings, store = experiment.settings, experiment.store
    data = dataset(experiment) if isinstance(model_reference(settings.model), OwnNano) else None
    target = StageKeys(settings).base_model(store)
    assert target is not None

    def make(folder: Path) -> Mapping[str, float]:
        if data is None:
            reference.materialise(settings.model, folder, settings.dtype)
        else:
            _make_nano(experiment, split(store.open(data), "train"), folder)
        return {}

    return produce(store, target, make)


def _make_nano(experiment: Experiment, training: Sequence[Problem], folder: Path) -> None:
    """Leave `nano`, made for the training problems and their demonstrations, in `folder`."""
    from agentfly_core.models import own_nano  # loads torch, which takes seconds

    settings, reads_bytes = experiment.settings, own_nano.byte_tokenizer()
    if settings.warm_start:
        with environment_loop(experiment.whole.limits) as environments:
            # without limits of length or a seed; the script also speaks for frozen speakers
            shown = DemonstrationPlayer.of(experiment, reads_bytes, training, seed=0)
            spans = replace(shown, spec=boundless(shown.spec)).spans(environments)
    else:
        spec = rollout_spec(experiment, reads_bytes)
        spans = unshown(spec, reads_bytes, training, settings.quotas(HEARD))
    pieces = [own_nano.pieces(reads_bytes, conversation) for conversation in spans]
    longest = settings.agent.max_model_len
    own_nano.make(pieces, settings.nano.atoms, longest, folder, settings.dtype)


def tokenizer(experiment: Experiment) -> tuple[PreTrainedTokenizerBase, str]:
    """The tokenizer of the experiment's model, without its weights where they are not needed for
    it, and a digest of what it comes from.
    """
    if experiment.parent:
        return tokenizer_of(
            experiment.store, experiment.parent.policy
        ), experiment.parent.policy.digest
    if isinstance(model_reference(experiment.settings.model), OwnNano):
        model = base_model(experiment)
        return tokenizer_of(experiment.store, model), model.digest
    name = experiment.settings.model
    return reference.tokenizer(name), StageKeys(experiment.settings).model().key


def endpoint(experiment: Experiment, name: str) -> Artifact:
    """A chat service of the site as a policy, with the tokenizer of the experiment's model; raises
    ValueError for one that the site does not name.
    """
    settings = experiment.site.endpoint(name)
    tokens, source = tokenizer(experiment)
    target = keys.endpoint(name, settings, source)

    def make(folder: Path) -> Mapping[str, float]:
        tokens.save_pretrained(folder)
        write_json(folder / ENDPOINT_FILE, {"name": name})
        return {}

    return produce(experiment.store, target, make)


def policy_named(
    experiment: Experiment, named: str, model: Callable[[Experiment], Pointer]
) -> Pointer:
    """The policy that a reference names, a chat service too; by default the run's last.

    `model` gives the base model of an experiment whose model is that reference. Step 0 is the
    policy that step 1 starts from. Raises ValueError for a policy that is not there, and for one
    whose replies a function gives.
    """
    if not named:
        return final_policy(
            experiment.store,
            experiment.run_name("", False),
        )
    match policy_reference(named, experiment.store.names("runs")):
        case RunPolicy() | LastPolicy() as policy:
            return of_run(experiment.store, policy, "policy").policy
        case PolicyFile(path):
            if not os.path.isfile(path):
                raise ValueError(
                    f"There is no file {path!r}; expected one like results/EXPERIMENT/policy.json."
                )
            return dvc_pointer.read(Path(path))
        case EndpointPolicy(name):
            return endpoint(experiment, name)
        case WordPolicy.BASE:
            return experiment.parent.policy if experiment.parent else model(experiment)
        case ScriptPolicy() | WordPolicy():
            raise ValueError(
                f"Got the policy {named!r}, a function that gives the replies; expected one with "
                f"weights. `agentfly play EXPERIMENT --split test --policy {named}` plays this one."
            )
        case other_model:
            require(other_model)
            settings = experiment.settings.model_copy(update={"model": named, "fork": None})
            return model(experiment.on(settings))
