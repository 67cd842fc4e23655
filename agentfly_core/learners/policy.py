"""A causal language model as the learner sees it: log-probabilities at sampled tokens, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import AutoModelForCausalLM

from agentfly_core.batch import predictors, token_logprobs

PIECE = 1024
_RECOMPUTED: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": False}


class Policy(nn.Module):
    """Projects onto the vocabulary only where a sampled token is predicted, and in float32 only `PIECE` tokens at once.

    Rows are padded on the right, so that causal attention needs no mask.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self._predicts = torch.zeros(0, 0, dtype=torch.bool)
        model.get_output_embeddings().register_forward_pre_hook(self._where_predicting)

    def forward(self, tokens: Tensor, sampled: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        """Log-probability and entropy [rows, T] of the sampled tokens, 0 elsewhere; for int64 and bool [rows, T]."""
        self._predicts = predictors(sampled)
        logits = self.model(input_ids=tokens, use_cache=False).logits
        pieces = zip(_pieces(logits), _pieces(tokens[sampled]), strict=True)
        found = [checkpoint(token_logprobs, *piece, temperature, **_RECOMPUTED) for piece in pieces]
        empty = torch.zeros(sampled.shape, device=tokens.device)
        logprobs, entropy = (empty.masked_scatter(sampled, torch.cat(parts)) for parts in zip(*found, strict=True))
        return logprobs, entropy

    def _where_predicting(self, head: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
        return (inputs[0][self._predicts],)


def load_policy(folder: str, dtype: str) -> Policy:
    """The policy in a Hugging Face directory, without dropout; raises OSError when there is none.

    A weight of -0.0 becomes 0.0: summed over ranks, as a saved state is, the two could not be told apart.
    """
    if not (Path(folder) / "config.json").is_file():
        raise FileNotFoundError(f"{folder} holds no model: it has no config.json.")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype), trust_remote_code=False)
    for parameter in model.parameters():
        parameter.data.add_(0.0)
    return Policy(model).eval()


def _pieces(tensor: Tensor) -> tuple[Tensor, ...]:
    return tensor.split(PIECE)  # type: ignore[no-untyped-call, no-any-return]
