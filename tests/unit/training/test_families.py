"""Each family of models: the learner equals transformers' eager attention, in rows and trees."""

from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from agentfly_core.models import pretrained
from agentfly_core.training.policy import Policy, load_policy
from agentfly_core.training.prefix_tree import build_trees, flatten
from tests.support.model_families import FAMILIES, HYBRIDS, REMOVED, tiny

LENGTHS = torch.tensor([40, 33, 37])
PLACES = torch.arange(40).repeat(3, 1)
SAMPLED = (PLACES >= 12) & (LENGTHS[:, None] > PLACES) & (PLACES % 7 > 2)
FEATURES = [(family, feature) for family, removed in REMOVED.items() for feature in removed]


def rows() -> Tensor:
    """Three rows; the second has 25 tokens of the first."""
    tokens = torch.randint(3, 512, (3, 40), generator=torch.Generator().manual_seed(1))
    tokens[1, :25] = tokens[0, :25]
    return tokens


def of_transformers(model: PreTrainedModel, tokens: Tensor) -> Tensor:
    """Log-probabilities of sampled tokens, each row computed alone without padding."""
    logprobs = []
    for row, length, sampled in zip(tokens, LENGTHS, SAMPLED, strict=True):
        logits = model(input_ids=row[None, :length]).logits[0, :-1].float()
        each = logits.log_softmax(-1).gather(1, row[1:length, None])[:, 0]
        logprobs.append(each[sampled[1:length]])
    return torch.cat(logprobs)


def of_learner(policy: Policy, tokens: Tensor, shared: bool) -> Tensor:
    if not shared:
        return policy(tokens, SAMPLED, 1.0)[0][SAMPLED]
    trees = build_trees(tokens, LENGTHS, 1000)
    order = torch.tensor([row for tree in trees for row in tree.rows])
    assert len(trees) == 2
    logprobs = policy(tokens[order], SAMPLED[order], 1.0, flatten(tokens[order], trees))[0]
    return logprobs[order.argsort()][SAMPLED]


def gradient(model: PreTrainedModel, logprobs: Tensor) -> Tensor:
    """The gradient of the mean by all weights of the model."""
    model.zero_grad()
    logprobs.mean().backward()
    return torch.cat([one.grad.flatten() for one in model.parameters() if one.grad is not None])


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("shared", [False, True], ids=["rows", "trees"])
def test_the_learner_equals_eager_transformers(family: str, shared: bool, tmp_path: Path) -> None:
    if shared and family in HYBRIDS:
        pytest.skip("hybrids share no prefixes")
    tiny(family).save_pretrained(tmp_path)
    policy, eager, tokens = load_policy(str(tmp_path), "float32"), tiny(family), rows()
    ours, theirs = of_learner(policy, tokens, shared), of_transformers(eager, tokens)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    own, expected = gradient(policy.model, ours), gradient(eager, theirs)
    assert (own - expected).norm() < 1e-5 * expected.norm()


@pytest.mark.parametrize(("family", "feature"), FEATURES)
def test_each_feature_changes_a_logprob(family: str, feature: str) -> None:
    tokens = rows()
    with torch.no_grad():
        whole = of_transformers(tiny(family), tokens)
        removed = of_transformers(REMOVED[family][feature](family), tokens)
    assert (whole - removed).abs().max() > 1e-2


@pytest.mark.parametrize("family", FAMILIES)
def test_tokens_that_are_not_sampled_have_no_gradient(family: str) -> None:
    policy, tokens = Policy(tiny(family)), rows()
    inputs = policy.model.get_input_embeddings()
    kept: list[Tensor] = []
    inputs.register_forward_hook(lambda _, __, out: kept.append(out) or out.retain_grad())
    policy(tokens, SAMPLED, 1.0)[0].sum().backward()
    read = kept[0].grad
    assert read is not None
    last = [int(sampled.nonzero().max()) for sampled in SAMPLED]
    for row, place in enumerate(last):
        assert read[row, : place - 1].abs().max() > 0
        assert read[row, place:].abs().max() == 0


def test_soft_capped_attention_is_computed_eagerly(tmp_path: Path) -> None:
    kernels = {}
    for family in ("gemma2", "gemma3"):
        tiny(family).save_pretrained(tmp_path / family)
        model = pretrained.load(
            {"pretrained_model_name_or_path": str(tmp_path / family)}, "float32"
        )
        kernels[family] = model.config._attn_implementation
    assert kernels == {"gemma2": "eager", "gemma3": "sdpa"}
