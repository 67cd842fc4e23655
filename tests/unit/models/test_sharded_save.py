"""A policy's weights are written in parts, independent of their memory layout."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from agentfly_core.models import sharded_save


@pytest.fixture(params=["tied float32", "tied bfloat16", "untied float32", "untied bfloat16"])
def model(request: pytest.FixtureRequest, nano: Path) -> Any:
    embeddings, dtype = request.param.split()
    config = AutoConfig.from_pretrained(nano, tie_word_embeddings=embeddings == "tied")
    return AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype))


@pytest.fixture()
def of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharded_save, "SMALLEST", 1)


def weights(model: Any) -> dict[str, Tensor]:
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_small_model_is_written_like_transformers(model: Any, tmp_path: Path) -> None:
    (tmp_path / "ours").mkdir()
    sharded_save.write(model, weights(model), tmp_path / "ours")
    model.save_pretrained(tmp_path / "theirs")
    assert contents(tmp_path / "ours") == contents(tmp_path / "theirs")


def test_parts_are_read_as_one_model(model: Any, of_any_size: None, tmp_path: Path) -> None:
    sharded_save.write(model, weights(model), tmp_path)
    assert len(list(tmp_path.glob("model-0000?-of-0000?.safetensors"))) >= 4
    loaded_model, report = AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values()), "nothing is missing, and nothing is too much"
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == sum(
        weight.nbytes for weight in weights(model).values()
    )
    assert weights(loaded_model).keys() == weights(model).keys()
    for name, weight in weights(loaded_model).items():
        assert (weight.dtype, weight.tolist()) == (model.dtype, weights(model)[name].tolist())


def test_only_large_models_are_divided(
    model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = sum(weight.nbytes for weight in weights(model).values())
    for smallest, parts in ((size, range(1, 2)), (size // 2, range(2, 4)), (1, range(4, 7))):
        monkeypatch.setattr(sharded_save, "SMALLEST", smallest)
        folder = tmp_path / str(smallest)
        folder.mkdir()
        sharded_save.write(model, weights(model), folder)
        assert len(list(folder.glob("*.safetensors"))) in parts


def test_views_of_one_buffer_give_the_same_files(
    model: Any, of_any_size: None, tmp_path: Path
) -> None:
    own = weights(model)
    flat = torch.cat([weight.flatten() for weight in own.values()])
    views = zip(own, flat.split([weight.numel() for weight in own.values()]), strict=True)
    for name, tensors in (
        ("own", own),
        ("views", {key: view.view_as(own[key]) for key, view in views}),
    ):
        (tmp_path / name).mkdir()
        sharded_save.write(model, tensors, tmp_path / name)
    assert contents(tmp_path / "own") == contents(tmp_path / "views")
