"""A tiny random model of each family that can be trained."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from agentfly_core.models.pretrained import materialise

SIZES: dict[str, Any] = {
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
WINDOW = 8
EVERY_OTHER = {"layer_types": ["sliding_attention", "full_attention"] * 2, "sliding_window": WINDOW}
SCALE = {"query_pre_attn_scalar": 4, "head_dim": 32}
CAP = {"final_logit_softcapping": 2.0}
ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
LINEAR = {
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "layer_types": ["linear_attention", "full_attention"] * 2,
}
MAMBA = {
    "layers_block_type": ["mamba", "mlp", "attention", "mlp"],
    "mamba_num_heads": 4,
    "mamba_head_dim": 16,
    "ssm_state_size": 8,
    "n_groups": 2,
    "chunk_size": 16,
    # transformers limits steps of time in prompts, but not in decoding
    "time_step_min": 1e-9,
}
FAMILIES: dict[str, tuple[str, Mapping[str, Any]]] = {
    "qwen2.5": ("Qwen2Config", {}),
    "qwen3": ("Qwen3Config", {"head_dim": 32}),
    "llama3": ("LlamaConfig", {"rope_parameters": ROPE}),
    "smollm3": ("SmolLM3Config", {"no_rope_layers": [1, 0, 1, 0]}),
    "phi4": ("Phi3Config", {"partial_rotary_factor": 0.75}),
    "mistral": ("MistralConfig", {"sliding_window": WINDOW, "head_dim": 32}),
    "olmo3": ("Olmo3Config", EVERY_OTHER),
    "gemma2": ("Gemma2Config", EVERY_OTHER | SCALE | CAP | {"attn_logit_softcapping": 1.0}),
    "gemma3": ("Gemma3TextConfig", EVERY_OTHER | SCALE | CAP),
    "qwen3.5": ("Qwen3_5TextConfig", {"head_dim": 32} | LINEAR),
    "nemotron-h": ("NemotronHConfig", {"head_dim": 32} | MAMBA),
}
"""Class and settings of the config of each family; a distilled R1 is a Qwen 2.5 or a Llama 3."""
HYBRIDS = ("qwen3.5", "nemotron-h")
"""Families with layers that no mask limits."""


def tiny(family: str, **changed: Any) -> PreTrainedModel:
    """A model of the family with four layers, by eager attention; settings may be changed."""
    kind, settings = FAMILIES[family]
    config = getattr(transformers, kind)(**{**SIZES, **settings, **changed})
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model: PreTrainedModel = AutoModelForCausalLM.from_config(
            config, attn_implementation="eager"
        )
    draw = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        # weights of norms stay around 1
        own = parameter.data if parameter.dim() == 1 else 0
        parameter.data = own + 0.2 * torch.randn(parameter.shape, generator=draw)
    return model.eval()


def stored(family: str, folder: Path, words: Path) -> Path:
    """A policy folder with the family's model and the tokenizer in `words`."""
    source = folder / "source"
    tiny(family).save_pretrained(source)
    AutoTokenizer.from_pretrained(words).save_pretrained(source)
    (folder / "policy").mkdir()
    materialise(str(source), folder / "policy", "float32")
    return folder / "policy"


def with_settings(**changed: Any) -> Callable[[str], PreTrainedModel]:
    """The same weights under other settings."""

    def change(family: str) -> PreTrainedModel:
        model = tiny(family, **changed)
        model.load_state_dict(tiny(family).state_dict())
        return model

    return change


def without_biases(family: str) -> PreTrainedModel:
    """The model with all biases of linear layers and convolutions 0."""
    model = tiny(family)
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Conv1d)) and module.bias is not None:
            module.bias.data.zero_()
    return model


def without_head_norms(family: str) -> PreTrainedModel:
    """The model without norms of queries and keys."""
    model = tiny(family)
    for module in model.modules():
        if hasattr(module, "q_norm"):
            module.q_norm, module.k_norm = nn.Identity(), nn.Identity()
    return model


REMOVED: dict[str, Mapping[str, Callable[[str], PreTrainedModel]]] = {
    "qwen2.5": {"bias": without_biases},
    "qwen3": {"norms of heads": without_head_norms},
    "llama3": {"scaled RoPE": with_settings(rope_parameters={"rope_theta": 500_000.0})},
    "smollm3": {"layers without RoPE": with_settings(no_rope_layers=[1, 1, 1, 1])},
    "phi4": {"part of RoPE": with_settings(partial_rotary_factor=1.0)},
    "mistral": {"window": with_settings(sliding_window=None)},
    "olmo3": {"window": with_settings(sliding_window=256), "norms of heads": without_head_norms},
    "gemma2": {
        "window": with_settings(sliding_window=256),
        "scale": with_settings(query_pre_attn_scalar=32),
        "cap of attention": with_settings(attn_logit_softcapping=None),
        "cap of logits": with_settings(final_logit_softcapping=None),
    },
    "gemma3": {
        "window": with_settings(sliding_window=256),
        "scale": with_settings(query_pre_attn_scalar=32),
        "cap of logits": with_settings(final_logit_softcapping=None),
        "norms of heads": without_head_norms,
    },
    "qwen3.5": {"norms of heads": without_head_norms},
    "nemotron-h": {"bias": without_biases},
}
"""A model of each family without one of its features."""
