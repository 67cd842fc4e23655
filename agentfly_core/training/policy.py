"""A causal language model as the learner sees it: log-probabilities at sampled tokens, and nothing
else.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from itertools import repeat
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from agentfly_core.config.experiment import Adapter
from agentfly_core.models import lora
from agentfly_core.models.known import is_adapter
from agentfly_core.rl.batch import predictors, token_logprobs
from agentfly_core.rl.interface import Critic
from agentfly_core.training.prefix_tree import PrefixTrees

PIECES = {"cpu": 256, "cuda": 1024}
"""How many tokens are projected at once: more on a GPU, since each piece adds a gradient for the
whole vocabulary.
"""


class Policy(nn.Module):
    """Projects onto the vocabulary only where a sampled token is predicted.

    Rows are padded on the right: causal attention then needs no mask. A critic predicts the return
    from the hidden state before each sampled token. It reads the policy's hidden states, or its own
    backbone's.
    """

    def __init__(self, model: PreTrainedModel, critic: Critic = "none") -> None:
        super().__init__()
        self.model = model
        self.projection = Projection(model.get_output_embeddings())
        self.critic: nn.ModuleDict | None = None
        if critic != "none":
            # It predicts 0 at first. Its own backbone is a copy of the policy's layers.
            head = nn.Linear(self.projection.weight.shape[1], 1, dtype=model.dtype)
            nn.init.zeros_(head.weight)
            nn.init.zeros_(head.bias)
            own = {} if critic == "head" else {"backbone": copy.deepcopy(model.base_model)}
            self.critic = nn.ModuleDict({**own, "head": head})

    def forward(
        self,
        tokens: Tensor,
        sampled: Tensor,
        temperature: float | Tensor,
        trees: PrefixTrees | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Log-probability, entropy and value [rows, T] of sampled tokens, 0 elsewhere. `tokens` are
        int64 and `sampled` is bool, both [rows, T]; `temperature` is a number or [rows, T].

        With `trees`, these rows as prefix trees, the model reads those instead, to the same result.
        """
        inputs = {"input_ids": tokens} if trees is None else trees.inputs(self.model.dtype)
        places = torch.arange(tokens.numel(), device=tokens.device).view_as(tokens)
        predicting = (places if trees is None else trees.places)[predictors(sampled)]
        hidden = _hidden(self.model.base_model, inputs)[predicting]
        if isinstance(temperature, Tensor):
            temperature = temperature[sampled]
        of_tokens = self.projection(hidden, tokens[sampled], temperature)
        if self.critic is None:
            of_critic = hidden.new_zeros(len(hidden), dtype=torch.float32)
        else:
            if "backbone" in self.critic:
                hidden = _hidden(self.critic["backbone"], inputs)[predicting]
            of_critic = self.critic["head"](hidden).squeeze(-1).float()
        empty = torch.zeros(sampled.shape, device=tokens.device)
        logprobs, entropy, values = (
            empty.masked_scatter(sampled, part) for part in (*of_tokens, of_critic)
        )
        return logprobs, entropy, values


class Projection(nn.Module):
    """A model's output layer, which never makes the logits of more than a piece of the tokens at
    once.

    All pieces are one call of one module: ZeRO 3 gathers the weights of modules as they are called,
    which must be on all ranks in the same order, and one rank may have more pieces than another.
    """

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias

    def forward(
        self, hidden: Tensor, tokens: Tensor, temperature: float | Tensor
    ) -> tuple[Tensor, Tensor]:
        """The log-probability and entropy [n] of tokens, at one temperature or one each [n]; if in
        several pieces, each is recomputed in the backward.
        """

        def chosen(
            hidden: Tensor, tokens: Tensor, temperature: float | Tensor
        ) -> tuple[Tensor, Tensor]:
            return token_logprobs(linear(hidden, self.weight, self.bias), tokens, temperature)

        size = PIECES[hidden.device.type]
        if len(tokens) <= size:
            return chosen(hidden, tokens, temperature)
        temperatures: Iterable[float | Tensor] = repeat(temperature)
        if isinstance(temperature, Tensor):
            temperatures = torch.split(temperature, size)
        read = zip(torch.split(hidden, size), torch.split(tokens, size), strict=True)
        pieces = ((*one, of_one) for one, of_one in zip(read, temperatures, strict=False))
        outputs = [
            checkpoint(chosen, *piece, use_reentrant=False, preserve_rng_state=False)
            for piece in pieces
        ]
        logprobs, entropy = (torch.cat(parts) for parts in zip(*outputs, strict=True))
        return logprobs, entropy


def _hidden(backbone: nn.Module, inputs: Mapping[str, Tensor]) -> Tensor:
    """The last hidden states [rows * T, width], one row of tokens after another."""
    hidden: Tensor = backbone(**inputs, use_cache=False).last_hidden_state
    return hidden.flatten(0, 1)


def load_policy(
    folder: str,
    dtype: str,
    critic: Critic = "none",
    base: str | None = None,
    adapter: Adapter | None = None,
    seed: int = 0,
) -> Policy:
    """The policy in a directory, an adapter on `base` if it is one, without dropout, and a new
    critic.

    With an `adapter`, a policy that has none gets a new one, made from the `seed`. Raises OSError
    where no model is. A weight of -0.0 becomes 0.0: a saved state is a sum over ranks, which loses
    the sign of zero.
    """
    model = lora.load(Path(folder), Path(base) if base else None, dtype)
    if adapter is not None and not is_adapter(Path(folder)):
        lora.add(model, adapter, seed)
    for parameter in model.parameters():
        parameter.data.add_(0.0)
    return Policy(model, critic).eval()


def recompute_activations(policy: Policy) -> None:
    """Keep only the inputs of each layer; the backward pass recomputes its activations (arXiv
    1604.06174).

    transformers does so only for layers in training mode. This mode is set on the layers alone, not
    on the modules inside them. Raises ValueError for a model that cannot do it, or would do it with
    dropout.
    """
    config = policy.model.config
    if any(value for name, value in config.to_dict().items() if "drop" in name):
        raise ValueError(
            f"{config.model_type} has dropout: set it to 0 in its config.json for gradient "
            "checkpointing."
        )
    for part in (policy.model, *(policy.critic.values() if policy.critic is not None else ())):
        if isinstance(part, PreTrainedModel):
            part.gradient_checkpointing_enable(
                {"use_reentrant": False, "preserve_rng_state": False}
            )
    for layer in policy.modules():
        if isinstance(layer, GradientCheckpointingLayer):
            layer.training = True
