"""Checks of config.json before any weights are read."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config

from agentfly_core.config.site import Site
from agentfly_core.experiment import checks
from agentfly_core.models.model_config import positions, untrainable
from agentfly_core.models.pretrained import materialise
from agentfly_core.training.policy import Policy
from tests.support.experiments import experiment

SMALL: dict[str, Any] = {
    "vocab_size": 512,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
LINEAR = {"layer_types": ["linear_attention", "full_attention"]}
WRAPPED = {"text_config": SMALL}
UNSUPPORTED = [
    ("CohereConfig", SMALL, "logit_scale: 0.0625"),
    ("GraniteConfig", {**SMALL, "logits_scaling": 8.0}, "logits_scaling: 8.0"),
    ("FalconH1Config", {"lm_head_multiplier": 0.5}, "lm_head_multiplier: 0.5"),
    ("RecurrentGemmaConfig", SMALL, "logits_soft_cap: 30.0"),
    ("Qwen3MoeConfig", {**SMALL, **EXPERTS}, "mixture of experts .* sampled and evaluated"),
    ("MixtralConfig", SMALL, "mixture of experts"),
    ("Qwen3_5TextConfig", {**SMALL, **LINEAR}, "linear_attention: set update.share_prefixes=false"),
    (
        "BloomConfig",
        {"vocab_size": 512, "hidden_size": 32, "n_layer": 2, "n_head": 4},
        "an attention that no mask",
    ),
    ("Gemma3Config", WRAPPED, "wrapper around several models"),
    ("BertConfig", {**SMALL, "is_decoder": True}, "logits are not one projection"),
]


@pytest.mark.parametrize(("kind", "settings", "reason"), UNSUPPORTED)
def test_an_unsupported_architecture_is_refused_by_config_json(
    nano: Path, tmp_path: Path, kind: str, settings: dict[str, Any], reason: str
) -> None:
    folder = Path(shutil.copytree(nano, tmp_path / "mine"))
    getattr(transformers, kind)(**settings).save_pretrained(folder)
    settings = experiment(tmp_path, model=str(folder), agent={"max_model_len": 64}).settings
    with pytest.raises(ValueError, match=f"model: .*{reason}"):
        checks.check_beginning(settings)


def test_a_mixture_of_experts_can_be_evaluated(nano: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(nano, tmp_path / "mine"))
    (folder / "model.safetensors").unlink()
    settings = {**SMALL, **EXPERTS}
    config = transformers.Qwen3MoeConfig(**settings)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    checks.check_inputs(experiment(tmp_path, model=str(folder)).settings)
    (tmp_path / "made").mkdir()
    materialise(str(folder), tmp_path / "made", "float32")
    assert (tmp_path / "made/probe.json").exists()


def test_dense_nemotron_h_is_no_mixture_of_experts() -> None:
    kinds = ["mamba", "mlp", "attention"]
    dense = transformers.NemotronHConfig(layers_block_type=kinds)
    assert untrainable(dense, shares_prefixes=False) == []
    mixture = transformers.NemotronHConfig(layers_block_type=[*kinds, "moe"])
    assert "n_routed_experts: 8" in untrainable(mixture, shares_prefixes=False)[0]


def test_a_hybrid_is_sampled_by_vllm_on_a_gpu_only(nano: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(nano, tmp_path / "mine"))
    transformers.Qwen3_5TextConfig(**SMALL, **LINEAR).save_pretrained(folder)
    settings = experiment(tmp_path, model=str(folder)).settings
    with pytest.raises(ValueError, match=r"linear_attention.*: set site.sampler=transformers"):
        checks.check_place(settings, Site(sampler="vllm"))
    checks.check_place(settings, Site(sampler="transformers"))
    checks.check_place(settings, Site(sampler="vllm", device="cuda"))


@pytest.mark.parametrize(
    "config",
    [
        LlamaConfig(**SMALL),
        Qwen2Config(**SMALL),
        transformers.Qwen3Config(**SMALL),
        transformers.MistralConfig(**SMALL),
        transformers.Gemma2Config(**SMALL),
    ],
    ids=lambda config: config.model_type,
)
def test_dense_models_can_be_trained_with_shared_prefixes(config: Any) -> None:
    assert untrainable(config, shares_prefixes=True) == []


def test_more_tokens_than_positions_are_refused(nano: Path, tmp_path: Path) -> None:
    fits, long = (
        experiment(tmp_path, model=str(nano), agent={"max_model_len": length}).settings
        for length in (2048, 2049)
    )
    checks.check_beginning(fits)
    with pytest.raises(ValueError, match=r"max_model_len is 2049, .* has 2048 positions"):
        checks.check_beginning(long)


def test_yarn_multiplies_the_positions() -> None:
    rope = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    config = Qwen2Config(**SMALL, max_position_embeddings=32768, rope_parameters=rope)
    assert positions(config) == 131072
    assert positions(LlamaConfig(**SMALL, max_position_embeddings=2048)) == 2048


CHANGING: dict[str, tuple[Any, dict[str, Any]]] = {
    "longrope": (transformers.Phi3Config, {"short_factor": [1.0] * 4, "long_factor": [4.0] * 4}),
    "dynamic": (LlamaConfig, {"factor": 4.0}),
}


@pytest.mark.parametrize("rope_type", CHANGING)
def test_positions_end_where_a_longer_row_changes_a_shorter(rope_type: str) -> None:
    kind, factors = CHANGING[rope_type]
    rope = {"rope_type": rope_type, "rope_theta": 1e4, "original_max_position_embeddings": 32}
    whole = {"longrope": 256, "dynamic": 32}[rope_type]
    limits = {"max_position_embeddings": whole, "original_max_position_embeddings": 32}
    usual = {**SMALL, "initializer_range": 0.3, "pad_token_id": 0}
    config = kind(**usual, **limits, rope_parameters=rope | factors)
    policy = Policy(AutoModelForCausalLM.from_config(config).eval())
    assert positions(config) == 32
    alone, *beside = (short_row(policy, width) for width in (20, 32, 64))
    assert [torch.allclose(alone, other, atol=1e-5) for other in beside] == [True, False]


def short_row(policy: Policy, width: int) -> torch.Tensor:
    """Log-probabilities of a row of 20 tokens, in a batch with a row of `width` tokens."""
    tokens = torch.arange(width).repeat(2, 1)
    sampled = (tokens > 0) & (torch.tensor([[20], [width]]) > tokens)
    return policy(tokens, sampled, 1.0)[0][0, :20]
