"""Adapters as policies: the record of their base model and its checks."""

import json
import shutil

import pytest

from agentfly_core.config.experiment import Adapter
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.models import adapter_artifact, lora
from agentfly_core.models.pretrained import materialise
from agentfly_core.store.artifact import ArtifactKey
from agentfly_core.store.store import Damaged
from tests.support.experiments import experiment

SHAPE = Adapter(rank=2, alpha=4, targets=("q_proj", "v_proj"))


@pytest.fixture
def store(tmp_path, nano):
    """A store with a model, and an adapter of it that a step made."""
    store = experiment(tmp_path).store
    with store.publish(ArtifactKey("artifacts/model/nano", "model", "0", {})) as folder:
        shutil.copytree(nano, folder, dirs_exist_ok=True)
    with store.publish(ArtifactKey("runs/demo/steps/000001/policy", "update", "1", {})) as folder:
        model = lora.load(nano, None, "float32")
        lora.add(model, SHAPE, seed=1)
        model.save_pretrained(folder)
        adapter_artifact.remember(folder, store.artifact("artifacts/model/nano"), SHAPE)
    return store


@pytest.fixture
def model(store):
    return store.artifact("artifacts/model/nano")


@pytest.fixture
def policy(store):
    return store.artifact("runs/demo/steps/000001/policy")


def test_only_an_adapter_has_the_digest_of_its_model(store, model, policy):
    assert adapter_artifact.base_of(store, policy) == model
    assert adapter_artifact.folders(store, policy) == (store.open(policy), store.open(model))
    assert adapter_artifact.base_of(store, model) is None
    assert adapter_artifact.folders(store, model) == (store.open(model), None)


@pytest.mark.parametrize("written", [{"base": {}}, {"shape": {}}, {"base": 1, "shape": {}}, [1]])
def test_an_adapter_file_without_base_or_shape_is_damaged(tmp_path, written):
    store = experiment(tmp_path).store
    with store.publish(ArtifactKey("runs/demo/policy", "update", "1", {})) as folder:
        (folder / adapter_artifact.FILE).write_text(json.dumps(written))
    policy = store.artifact("runs/demo/policy")
    for read in (adapter_artifact.base_of, adapter_artifact.shape_of):
        with pytest.raises(Damaged, match="base and shape"):
            read(store, policy)


def test_an_adapter_on_a_changed_model_is_refused(store, model, policy, tmp_path):
    with store.publish(ArtifactKey(model.uri, "model", "another", {})) as folder:
        (folder / "model.safetensors").write_text("other weights")
    with pytest.raises(Damaged, match=r"000001/policy .*artifacts/model/nano \(digest"):
        adapter_artifact.folders(store, policy)
    store.remove(model.uri)
    with pytest.raises(Damaged, match=r"is an adapter of .*not published"):
        adapter_artifact.folders(store, policy)


def test_training_from_an_adapter_needs_its_shape(store, model, policy):
    adapter_artifact.require_same_shape(store, policy, SHAPE)
    adapter_artifact.require_same_shape(store, model, SHAPE)
    adapter_artifact.require_same_shape(store, model, None)
    for shape in (None, Adapter(rank=2, alpha=4)):
        with pytest.raises(
            ValueError,
            match=r"got .*, expected {'rank': 2, 'alpha': 4, 'targets': \['q_proj'",
        ):
            adapter_artifact.require_same_shape(store, policy, shape)


def test_the_disk_check_counts_the_files_of_the_adapter(store, model, policy, tmp_path):
    place = experiment(tmp_path, adapter=SHAPE.model_dump())
    assert place.sizes(model) == (0, 0)
    size = sum(path.stat().st_size for path in store.open(policy).iterdir())
    assert place.sizes(policy) == (size, 3 * size)


def test_an_adapter_folder_is_refused_as_a_model(store, policy, tmp_path):
    with pytest.raises(ValueError, match=r"contains an adapter.*run:NAME"):
        materialise(str(store.open(policy)), tmp_path, "float32")


def test_an_experiment_without_an_adapter_keeps_its_keys(tmp_path, model):
    plain, adapting = experiment(tmp_path).settings, experiment(tmp_path, adapter={}).settings
    keys = [
        StageKeys(settings).policy("demo", model, model, 1).key for settings in (plain, adapting)
    ]
    assert keys[0] != keys[1]
    older = plain.model_construct(**{name: value for name, value in plain if name != "adapter"})
    assert StageKeys(older).policy("demo", model, model, 1).key == keys[0]
