"""Model folders with contradictory files are refused before training."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import GenerationConfig

from agentfly_core.experiment import checks
from agentfly_core.models.pretrained import materialise
from tests.support.experiments import experiment

Weights = dict[str, torch.Tensor]
HEAD = "lm_head.weight"


def changed(folder: Path, change: Callable[[Weights], Any]) -> None:
    weights = load_file(folder / "model.safetensors")
    weights = change(weights) or weights
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def configured(folder: Path, **settings: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))


def prefixed(prefix: str) -> Callable[[Path], None]:
    return lambda folder: changed(
        folder, lambda weights: {f"{prefix}{name}": weight for name, weight in weights.items()}
    )


def layer_removed(folder: Path) -> None:
    changed(folder, lambda w: {n: t for n, t in w.items() if "layers.2." not in n})


def head_removed(folder: Path) -> None:
    changed(folder, lambda w: {n: t for n, t in w.items() if n != HEAD})


def lora_left(folder: Path) -> None:
    surplus = {"model.layers.0.self_attn.q_proj.lora_A.weight": torch.ones(2, 128)}
    changed(folder, lambda w: {**w, **surplus})


def classifier(folder: Path) -> None:
    configured(folder, architectures=["LlamaForSequenceClassification"])


def other_shape(folder: Path) -> None:
    changed(folder, lambda w: {**w, HEAD: w[HEAD][:100].clone()})


def not_a_number(folder: Path) -> None:
    changed(folder, lambda w: {**w, "model.norm.weight": w["model.norm.weight"] * torch.nan})


def quantised(folder: Path) -> None:
    configured(folder, quantization_config={"quant_method": "gptq", "bits": 4})


def cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])


def no_json(folder: Path) -> None:
    (folder / "config.json").write_text("{")


def shard_lost(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    places = {"model.norm.weight": "model-00002-of-00002.safetensors"}
    index = {"metadata": {"total_size": 1}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def bad_generation(folder: Path) -> None:
    (folder / "generation_config.json").write_text('{"max_new_tokens": 0}')


def cut_generation(folder: Path) -> None:
    (folder / "generation_config.json").write_text("{")


def encoder_decoder(folder: Path) -> None:
    configured(folder, model_type="t5", architectures=["T5ForConditionalGeneration"])


def two_saves(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text("{}")


def tokens_added(folder: Path) -> None:
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    added = {**tokenizer["added_tokens"][0], "id": 4096, "content": "<tool>", "special": False}
    tokenizer["added_tokens"].append(added)
    path.write_text(json.dumps(tokenizer))


def huge(folder: Path) -> None:
    large = (HEAD, "model.norm.weight")
    changed(folder, lambda w: {**w, **{name: w[name] * 1e30 for name in large}})


DEFECTS = [
    (prefixed("_orig_mod."), "from torch.compile: save the model that it wraps"),
    (prefixed("base_model.model."), "from peft: save the model that it wraps"),
    (layer_removed, r"9 missing \(model.layers.2.input_layernorm.weight, .* and 6 more\)"),
    (head_removed, r"1 missing \(lm_head.weight\)"),
    (lora_left, r"1 not part of the model \(model.layers.0.self_attn.q_proj.lora_A.weight\)"),
    (classifier, "model: .* has the architecture LlamaForSequenceClassification"),
    (other_shape, r"1 of another shape \(lm_head.weight \[100, 128\] \[\d+, 128\]\)"),
    (not_a_number, r"NaN or infinite numbers in these weights: model.norm.weight"),
    (quantised, r"model: .* the weights are quantised \(gptq\)"),
    (cut, r": model\.safetensors is damaged"),
    (no_json, "model: The config.json in .* cannot be read"),
    (shard_lost, "Cannot load the model"),
    (bad_generation, "generation_config.json cannot be read: .*max_new_tokens"),
    (cut_generation, "generation_config.json cannot be read"),
    (two_saves, "model: .* remove the older files"),
    (
        tokens_added,
        r"model: .* 1 token with an id of \d+ or more \(such as '<tool>'\), .* vocab_size",
    ),
    (huge, "The log-probabilities of .* are not finite"),
    (encoder_decoder, "model: .* expected a causal language model"),
]


@pytest.mark.parametrize(("defect", "message"), DEFECTS)
def test_a_defective_model_folder_is_refused_with_names(
    nano: Path, tmp_path: Path, defect: Callable[[Path], None], message: str
) -> None:
    folder = Path(shutil.copytree(nano, tmp_path / "mine"))
    defect(folder)
    with pytest.raises(ValueError, match=message):
        made(folder, tmp_path)
    assert not (tmp_path / "made/probe.json").exists()


def test_sampling_settings_without_sampling_are_repaired(nano: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(nano, tmp_path / "mine"))
    settings = {"do_sample": False, "temperature": 0.6, "eos_token_id": [2, 5]}
    (folder / "generation_config.json").write_text(json.dumps(settings))
    made(folder, tmp_path)
    saved = GenerationConfig.from_pretrained(tmp_path / "made")
    assert (saved.do_sample, saved.temperature, saved.eos_token_id) == (True, 0.6, [2, 5])


def test_an_untied_output_layer_is_kept_and_recorded(nano: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(nano, tmp_path / "mine"))
    configured(folder, tie_word_embeddings=True)
    made(folder, tmp_path)
    assert not json.loads((tmp_path / "made/config.json").read_text())["tie_word_embeddings"]
    kept, own = (load_file(path / "model.safetensors") for path in (tmp_path / "made", nano))
    assert torch.equal(kept[HEAD], own[HEAD])


def made(folder: Path, tmp_path: Path) -> None:
    """Check the config, then run the stage `model`."""
    checks.check_beginning(experiment(tmp_path, model=str(folder)).settings)
    (tmp_path / "made").mkdir()
    materialise(str(folder), tmp_path / "made", "float32")
