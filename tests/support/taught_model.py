"""A tiny random model that imitates episodes, with a whole vocabulary."""

import math
from collections.abc import Sequence
from pathlib import Path
from random import Random

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from agentfly_core.models.pretrained import materialise
from agentfly_core.records.trajectory import Trajectory

Row = tuple[list[int], list[bool]]
"""Tokens of a context, and which of them the policy sampled."""
STEPS, BATCH, RATE = 300, 8, 3e-3


def rows_of(trajectory: Trajectory) -> list[Row]:
    """The contexts of a trajectory."""
    rows: dict[int, Row] = {}
    for turn in trajectory.turns:
        tokens, sampled = rows.setdefault(turn.context, ([], []))
        reply = [token for span in turn.sampled for token in span.tokens]
        tokens += [*turn.given.tokens, *reply]
        sampled += [False] * len(turn.given.tokens) + [True] * len(reply)
    return list(rows.values())


def stored(rows: Sequence[Row], tokenizer: PreTrainedTokenizerFast, folder: Path) -> Path:
    """A policy folder with a Qwen3 that imitates the sampled tokens of these rows."""
    _taught(rows, len(tokenizer)).save_pretrained(folder / "source")
    tokenizer.save_pretrained(folder / "source")
    (folder / "policy").mkdir()
    materialise(str(folder / "source"), folder / "policy", "float32")
    return folder / "policy"


def _taught(rows: Sequence[Row], vocabulary: int) -> PreTrainedModel:
    """All tokens that no row samples have the logit 0, so only the others need a head."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=2048,
        tie_word_embeddings=False,
    )
    model = Qwen3ForCausalLM(config)
    model.model.embed_tokens.weight.data.normal_(0, 0.5).requires_grad_(False)
    own = sorted({token for row in rows for token, trained in zip(*row, strict=True) if trained})
    head = torch.nn.Linear(64, len(own), bias=False)
    others = math.log(vocabulary - len(own))
    weights = [*model.model.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW([one for one in weights if one.requires_grad], lr=RATE)
    places = {token: place for place, token in enumerate(own)}
    draw = Random(0)
    for _ in range(STEPS):
        tokens, sampled = _batch(draw.choices(rows, k=BATCH))
        hidden = model.model(tokens).last_hidden_state[:, :-1][sampled[:, 1:]]
        logits = head(hidden)
        logits = torch.cat([logits, torch.full_like(logits[:, :1], others)], -1)
        wanted = torch.tensor([places[token] for token in tokens[:, 1:][sampled[:, 1:]].tolist()])
        cross_entropy(logits, wanted).backward()
        optimizer.step()
        optimizer.zero_grad()
    model.lm_head.weight.data.zero_()[own] = head.weight.data
    return model


def _batch(rows: Sequence[Row]) -> tuple[Tensor, Tensor]:
    """Tokens, filled up at the end, and which are sampled."""
    longest = max(len(tokens) for tokens, _ in rows)
    tokens = [[*one, *[0] * (longest - len(one))] for one, _ in rows]
    sampled = [[*marks, *[False] * (longest - len(marks))] for _, marks in rows]
    return torch.tensor(tokens), torch.tensor(sampled)
