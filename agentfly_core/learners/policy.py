"""A causal language model as the learner sees it: log-probabilities at sampled tokens, and nothing else."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import AutoModelForCausalLM

from agentfly_core.algorithm import Critic
from agentfly_core.batch import predictors, token_logprobs

PIECE = 1024
_RECOMPUTED: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": False}


class Policy(nn.Module):
    """Projects onto the vocabulary only where a sampled token is predicted, and in float32 only `PIECE` tokens at once.

    Rows are padded on the right, so that causal attention needs no mask. A critic says what each sampled token was
    expected to lead to, before it: it sees the same hidden states, or its own.
    """

    def __init__(self, model: Any, critic: Critic = "none") -> None:
        super().__init__()
        self.model = model
        self.critic = _critic(model, critic)
        self._hidden = torch.zeros(0)
        self._predicts = torch.zeros(0, 0, dtype=torch.bool)
        model.get_output_embeddings().register_forward_pre_hook(self._where_predicting)

    def forward(self, tokens: Tensor, sampled: Tensor, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
        """Log-probability, entropy and value [rows, T] of sampled tokens, 0 elsewhere; for int64 and bool [rows, T]."""
        self._predicts = predictors(sampled)
        logits = self.model(input_ids=tokens, use_cache=False).logits
        pieces = zip(_pieces(logits), _pieces(tokens[sampled]), strict=True)
        found = [checkpoint(token_logprobs, *piece, temperature, **_RECOMPUTED) for piece in pieces]
        empty = torch.zeros(sampled.shape, device=tokens.device)
        logprobs, entropy = (empty.masked_scatter(sampled, torch.cat(parts)) for parts in zip(*found, strict=True))
        return logprobs, entropy, empty.masked_scatter(sampled, self._values(tokens))

    def _values(self, tokens: Tensor) -> Tensor:
        """The values [n] of the sampled tokens."""
        hidden, self._hidden = self._hidden, torch.zeros(0)
        if self.critic is None:
            return hidden.new_zeros(len(hidden), dtype=torch.float32)
        if "backbone" in self.critic:
            hidden = self.critic["backbone"](input_ids=tokens, use_cache=False).last_hidden_state[self._predicts]
        values: Tensor = self.critic["head"](hidden)
        return values.squeeze(-1).float()

    def _where_predicting(self, head: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
        self._hidden = inputs[0][self._predicts]
        return (self._hidden,)


def _critic(model: Any, kind: Critic) -> nn.ModuleDict | None:
    """A head that says 0 at first, and for a model of its own a copy of the policy's layers before it."""
    if kind == "none":
        return None
    width = model.get_output_embeddings().weight.shape[1]
    head = nn.Linear(width, 1, dtype=model.dtype)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    if kind == "head":
        return nn.ModuleDict({"head": head})
    return nn.ModuleDict({"backbone": copy.deepcopy(model.base_model), "head": head})


def load_policy(folder: str, dtype: str, critic: Critic = "none") -> Policy:
    """The policy in a Hugging Face directory, without dropout, and a new critic; raises OSError when there is none.

    A weight of -0.0 becomes 0.0: summed over ranks, as a saved state is, the two could not be told apart.
    """
    if not (Path(folder) / "config.json").is_file():
        raise FileNotFoundError(f"{folder} holds no model: it has no config.json.")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype), trust_remote_code=False)
    for parameter in model.parameters():
        parameter.data.add_(0.0)
    return Policy(model, critic).eval()


def _pieces(tensor: Tensor) -> tuple[Tensor, ...]:
    return tensor.split(PIECE)  # type: ignore[no-untyped-call, no-any-return]
