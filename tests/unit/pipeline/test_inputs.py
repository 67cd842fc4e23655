"""The model `nano` of an experiment: settings that change its bytes, and others."""

import shutil
import threading
from pathlib import Path

import pytest
import yaml
from transformers import AutoTokenizer

from agentfly_core.authoring.tool import tool
from agentfly_core.config.experiment import Settings
from agentfly_core.config.site import Site
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.pipeline import inputs
from agentfly_core.pipeline.produce import Reused
from agentfly_core.pipeline.stop_conditions import GateClosed
from agentfly_core.records.messages import call_text
from agentfly_core.store.artifact import ArtifactKey
from agentfly_core.store.store import Store
from tests.support.stock import EXPERIMENT, counted
from tests.support.waiting import LIMIT

pytestmark = pytest.mark.slow

DATA = yaml.safe_load(EXPERIMENT)["data"]
SHOWN = yaml.safe_load(EXPERIMENT)["warm_start"]
BEGUN, RELEASED = threading.Event(), threading.Event()


@tool(timeout=0.05)
async def count(room: str, thing: str) -> str:
    """Count, and hold the event loop the first time."""
    if not BEGUN.is_set():
        BEGUN.set()
        RELEASED.wait(LIMIT)
    return counted(room, thing)


def experiment_with(folder: Path, **changes: object) -> Experiment:
    """The experiment of tests.support.stock with other settings and its own store."""
    settings = Settings.model_validate({**yaml.safe_load(EXPERIMENT), **changes})
    store = Store.at(str(folder / "store"), folder / "cache")
    return Experiment.of("stock", settings, {}, Site(), store)


def files_of_model(experiment: Experiment) -> dict[str, str]:
    """The sha256 of each file of the model."""
    artifact = inputs.base_model(experiment)
    manifest = artifact.manifest
    assert manifest is not None
    return {
        name: entry["sha256"] for name, entry in manifest["files"].items() if name != "metrics.json"
    }


@pytest.fixture(scope="module")
def nano_experiment(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    """The experiment with its model; tests must not write into its store."""
    experiment = experiment_with(tmp_path_factory.mktemp("usual"))
    inputs.base_model(experiment)
    return experiment


def test_the_model_is_created_once_and_reused(nano_experiment: Experiment, tmp_path: Path) -> None:
    model = inputs.base_model(experiment_with(tmp_path))
    assert not isinstance(model, Reused)
    again = inputs.base_model(experiment_with(tmp_path))
    assert isinstance(again, Reused)
    assert again == model
    assert files_of_model(experiment_with(tmp_path)) == files_of_model(nano_experiment)


def test_only_training_problems_change_the_model(
    nano_experiment: Experiment, tmp_path: Path
) -> None:
    other = {**DATA, "held_out": "In the attic are zebras: how many {} are in the {}?"}
    experiment = experiment_with(tmp_path / "other", data=other)
    assert files_of_model(experiment) == files_of_model(nano_experiment)
    assert (
        b"zebras"
        in (experiment.store.open(inputs.dataset(experiment)) / "test.parquet").read_bytes()
    )
    fewer = experiment_with(tmp_path, data={**DATA, "train": 20})
    assert (
        files_of_model(fewer)["tokenizer.json"] != files_of_model(nano_experiment)["tokenizer.json"]
    )


def test_seed_and_training_settings_keep_the_model(tmp_path: Path) -> None:
    model = inputs.base_model(experiment_with(tmp_path, data={**DATA, "seed": 0}))
    trained = {**SHOWN, "rounds": 2, "learning_rate": 1e-4}
    changed = experiment_with(tmp_path, data={**DATA, "seed": 0}, seed=3, warm_start=trained)
    again = inputs.base_model(changed)
    assert isinstance(again, Reused)
    assert again == model


@pytest.mark.parametrize(
    "changes",
    [
        {"warm_start": {**SHOWN, "settings": {"spoilt": 0.0}}},
        {"tools": ["tests.support.stock:count"]},
        {"nano": {"atoms": ["has"]}},
        {"dtype": "bfloat16"},
    ],
    ids=["demonstrations", "tools", "atoms", "dtype"],
)
def test_inputs_of_the_model_change_the_model(changes: dict[str, object], tmp_path: Path) -> None:
    usual, other = experiment_with(tmp_path), experiment_with(tmp_path, **changes)
    data, others = inputs.dataset(usual), inputs.dataset(other)
    key = StageKeys(usual.settings).base_model(data)
    assert key is not None
    assert key != StageKeys(other.settings).base_model(others)


def test_rooms_and_things_are_tokens_and_a_call_is_short(nano_experiment: Experiment) -> None:
    folder = nano_experiment.store.open(inputs.base_model(nano_experiment))
    call = call_text("count", room="attic", thing="ropes")
    assert AutoTokenizer.from_pretrained(folder).tokenize(call)[-4:] == [
        "attic",
        '",Ġ"thing":Ġ"',
        "ropes",
        '"}}Ċ</tool_call>',
    ]


@pytest.mark.parametrize("template", ["hermes", "model"])
def test_without_demonstrations_it_encodes_prompts_and_calls(template: str, tmp_path: Path) -> None:
    experiment = experiment_with(tmp_path, warm_start=None, template={"use": template})
    folder = experiment.store.open(inputs.base_model(experiment))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert {"attic", "ropes"} <= {*tokenizer.tokenize("user\nHow many ropes has the attic?")}
    call = '<tool_call>\n{"name": "count", "arguments": {"room": "'
    assert len(tokenizer.tokenize(call)) < 5


def test_failed_demonstrations_give_no_model(tmp_path: Path) -> None:
    shown = {"demonstrations": "tests.unit.pipeline.test_playing:asks_the_shop"}
    tools = ["tests.unit.pipeline.test_playing:shop"]
    experiment = experiment_with(tmp_path, warm_start=shown, tools=tools)
    with pytest.raises(GateClosed, match=r"512 of 512 episodes failed .*shop is closed"):
        inputs.base_model(experiment)
    assert experiment.store.names("artifacts/model") == []


def test_a_demonstration_that_blocks_leaves_the_others(tmp_path: Path) -> None:
    experiment = experiment_with(tmp_path, tools=[f"{__name__}:count"])
    try:
        assert inputs.base_model(experiment).manifest is not None
    finally:
        RELEASED.set()
    assert BEGUN.is_set()


def test_the_model_key_needs_the_dataset(tmp_path: Path) -> None:
    experiment = experiment_with(tmp_path)
    assert StageKeys(experiment.settings).base_model(None) is None
    data = inputs.dataset(experiment)
    assert StageKeys(experiment.settings).base_model(data) is not None


def test_a_run_has_the_tokenizer_of_its_starting_policy(tmp_path: Path, nano: Path) -> None:
    store = experiment_with(tmp_path).store
    with store.publish(ArtifactKey("runs/demo/steps/000001/policy", "update", "1", {})) as folder:
        shutil.copytree(nano, folder, dirs_exist_ok=True)
    tokenizer, source = inputs.tokenizer(experiment_with(tmp_path, model="run:demo@1"))
    assert tokenizer.encode("99") == AutoTokenizer.from_pretrained(nano).encode("99")
    assert source == store.artifact("runs/demo/steps/000001/policy").digest
