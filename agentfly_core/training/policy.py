"""A causal language model that computes log-probabilities only for sampled tokens."""

import copy
from collections.abc import Iterable, Mapping
from itertools import repeat
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from agentfly_core.config.experiment import Adapter
from agentfly_core.models import lora
from agentfly_core.rl.batch import predictors, token_logprobs
from agentfly_core.rl.interface import Critic
from agentfly_core.training.prefix_tree import PrefixTrees

PIECES = {"cpu": 256, "cuda": 1024}
"""The number of tokens in a piece, for which logits are computed at the same time.

In the backward pass, each piece makes a gradient with the size of the output layer. Large pieces
make fewer of these gradients, so pieces are larger on a GPU.
"""


class Policy(nn.Module):
    """A language model, with an optional critic.

    Logits are computed only at positions that predict sampled tokens. Rows are padded on the right,
    so causal attention needs no mask. The critic predicts the return from the hidden state before
    each sampled token. This hidden state comes from the policy, or from the critic's own copy of
    the model.
    """

    def __init__(self, model: PreTrainedModel, critic: Critic = "none") -> None:
        super().__init__()
        self.model = model
        text = model.config.get_text_config(decoder=True)
        cap = getattr(text, "final_logit_softcapping", None)
        self.projection = Projection(model.get_output_embeddings(), cap)
        self.critic: nn.ModuleDict | None = None
        if critic != "none":
            # the initial weights predict 0
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
        """Compute the log-probabilities, the entropies and the critic's values, each [rows, T].

        All three are 0 for tokens that were not sampled. `tokens` (int64) and `sampled` (bool) have
        the shape [rows, T]. `temperature` is a number, or has the shape [rows, T]. `trees` may
        contain the same rows, merged at common prefixes. With `trees`, common prefixes are computed
        only once, and the result differs only by rounding.
        """
        inputs: dict[str, Any] = {"input_ids": tokens}
        if trees is not None:
            inputs = trees.inputs(self.model.config.get_text_config(decoder=True), self.model.dtype)
        # only the positions that predict sampled tokens, because logits need much memory
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
    """An output layer that computes the logits in pieces, which saves memory.

    A piece has 256 tokens on a CPU, and 1,024 tokens on a GPU. A single call of the module
    processes all pieces. At ZeRO stage 3, each call gathers the weights from all ranks, so all
    ranks must make the same number of calls. `cap` bounds the logits by soft-capping (arXiv
    2408.00118), or is None for models without soft-capping.
    """

    def __init__(self, layer: nn.Linear, cap: float | None) -> None:
        super().__init__()
        self.weight, self.bias, self.cap = layer.weight, layer.bias, cap

    def forward(
        self, hidden: Tensor, tokens: Tensor, temperature: float | Tensor
    ) -> tuple[Tensor, Tensor]:
        """Compute the log-probabilities and the entropies of n tokens, each [n].

        The tokens are processed in pieces. With more than one piece, the backward pass computes
        the logits again to save memory.
        """

        def chosen(
            hidden: Tensor, tokens: Tensor, temperature: float | Tensor
        ) -> tuple[Tensor, Tensor]:
            logits = linear(hidden, self.weight, self.bias)
            if self.cap is not None:
                logits = self.cap * torch.tanh(logits / self.cap)
            return token_logprobs(logits, tokens, temperature)

        # a float32 tensor [n, vocabulary] would need more memory than the rest of the update
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


def _hidden(backbone: nn.Module, inputs: Mapping[str, Any]) -> Tensor:
    """Return the hidden states of the last layer, with the shape [rows * T, width]."""
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
    """Load the policy in a folder. Dropout is turned off.

    If the policy is an adapter, `base` is the folder of its base model. If `adapter` is set without
    `base`, the model gets a new adapter, which is initialised with `seed`. The critic is always
    new, because a policy's folder does not contain it. Weights of -0.0 become 0.0, so that
    a continued run gets exactly the same weights as an uninterrupted run. Raises OSError if the
    model is missing.
    """
    model = lora.load(Path(folder), Path(base) if base else None, dtype)
    if adapter is not None and base is None:
        lora.add(model, adapter, seed)
    for parameter in model.parameters():
        # a sum over ranks changes -0.0 to 0.0, and a continued run must have the same bytes
        parameter.data.add_(0.0)
    return Policy(model, critic).eval()


def recompute_activations(policy: Policy) -> None:
    """Make layers compute their activations again in the backward pass (arXiv 1604.06174).

    This sets layers to training mode, which transformers requires. Raises ValueError if the model
    has dropout, or if it does not support gradient checkpointing.
    """
    config = policy.model.config
    if keys := [name for name, value in config.to_dict().items() if "drop" in name and value]:
        raise ValueError(
            f"{config.model_type} has dropout, which gradient checkpointing does not allow. In the "
            f"model's config.json, set to 0: {', '.join(keys)}."
        )
    for part in (policy.model, *(policy.critic.values() if policy.critic is not None else ())):
        if isinstance(part, PreTrainedModel):
            part.gradient_checkpointing_enable(
                {"use_reentrant": False, "preserve_rng_state": False}
            )
    for layer in policy.modules():
        if isinstance(layer, GradientCheckpointingLayer):
            layer.training = True
