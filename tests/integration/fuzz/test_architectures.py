"""Every causal architecture of transformers: refused for training, or read as transformers does."""

from typing import Any

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from agentfly_core.models.model_config import require_loadable, untrainable
from agentfly_core.training.policy import Policy
from agentfly_core.training.prefix_tree import build_trees, flatten

SIZES: dict[str, Any] = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "n_embd": 64,
    "n_layer": 2,
    "n_head": 4,
    "d_model": 64,
    "head_dim": 16,
    "rotary_dim": 8,
    "sliding_window": 3,
    "use_sliding_window": True,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}
LARGEST = 30_000_000
ROWS = torch.tensor([[1, 87, 5, 2, 3, 4], [1, 87, 5, 9, 33, 0], [9, 9, 4, 4, 7, 8]])
LENGTHS = torch.tensor([6, 5, 6])
SAMPLED = (torch.arange(6) >= 3) & (torch.arange(6) < LENGTHS[:, None])


@pytest.mark.long
def test_the_learner_reads_every_trainable_architecture_right() -> None:
    differences = {}
    for kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        if (model := tiny(kind)) is not None:
            differences[kind] = max(difference(model, shared) for shared in (False, True))
    assert {kind for kind, value in differences.items() if not value < 1e-4} == set()
    assert len(differences) > 30


def tiny(kind: str) -> PreTrainedModel | None:
    """A small random model that may be trained; None where transformers cannot make one so."""
    try:
        fields = vars(CONFIG_MAPPING[kind]())
        sizes = {key: value for key, value in SIZES.items() if key in fields}
        config: PreTrainedConfig = CONFIG_MAPPING[kind](**{**sizes, "vocab_size": 128})
        require_loadable(config, kind)
        with torch.device("meta"):
            count = AutoModelForCausalLM.from_config(config).num_parameters()
        if count > LARGEST or untrainable(config, shares_prefixes=True):
            return None
        torch.manual_seed(0)
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config).eval()
        model(input_ids=ROWS)
    except Exception:  # sizes that do not fit this architecture
        return None
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.3)
    return model


@torch.no_grad()
def difference(model: PreTrainedModel, shared: bool) -> float:
    """The largest difference of log-probabilities between learner and transformers."""
    trees = flatten(ROWS, build_trees(ROWS, LENGTHS, 100)) if shared else None
    got = Policy(model).eval()(ROWS, SAMPLED, 1.0, trees)[0]
    largest = 0.0
    for row, length, logprobs in zip(ROWS, LENGTHS, got, strict=True):
        logits = model(input_ids=row[None, :length]).logits[0, 2:-1].float()
        expected = logits.log_softmax(-1).gather(-1, row[3:length, None])[:, 0]
        largest = max(largest, float((logprobs[3:length] - expected).abs().max()))
    return largest
