"""Untrained models of less than a million parameters."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from agentfly_core.models.pretrained import write


def write_untrained(
    tokenizer: PreTrainedTokenizerFast, folder: Path, dtype: str, positions: int
) -> None:
    """Write a tokenizer and an untrained model for it into `folder`, the same bytes each time.

    A Llama of 3 layers, 128 wide, with 2 heads of 64 (a size that vLLM has on CPU), for contexts of
    `positions` tokens.
    """
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = LlamaConfig(
            hidden_size=128,
            intermediate_size=352,
            num_hidden_layers=3,
            num_attention_heads=2,
            num_key_value_heads=2,
            tie_word_embeddings=False,
            bos_token_id=None,
            vocab_size=len(tokenizer),
            max_position_embeddings=positions,
            eos_token_id=tokenizer.eos_token_id,
        )
        model = LlamaForCausalLM(config)
    write(model.to(getattr(torch, dtype)), tokenizer, folder)
