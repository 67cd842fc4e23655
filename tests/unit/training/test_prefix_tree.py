"""Prefix sharing: rows with equal beginnings as trees of tokens."""

import random

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

from agentfly_core.rl.batch import pack
from agentfly_core.testing.trajectories import trajectory, turn
from agentfly_core.training.policy import Policy
from agentfly_core.training.prefix_tree import build_trees, flatten

ROWS = torch.tensor([[1, 87, 5, 0], [9, 9, 0, 0], [1, 87, 4, 2]])
LENGTHS = torch.tensor([3, 2, 4])
SMALL = {
    "vocab_size": 128,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
}


def test_a_token_of_a_tree_attends_to_its_own_row_only():
    shared, alone = build_trees(ROWS, LENGTHS, 100)
    assert (shared.rows, shared.size, alone.rows, alone.size) == ((2, 0), 5, (1,), 2)
    trees = flatten(ROWS[[2, 0, 1]], [shared, alone])
    #                                 1  87  4  2 | 5
    assert trees.tokens.tolist() == [[1, 87, 4, 2, 5], [9, 9, 0, 0, 0]]
    assert trees.depths.tolist() == [[0, 1, 2, 3, 2], [0, 1, 0, 0, 0]]
    assert trees.places.tolist() == [[0, 1, 2, 3], [0, 1, 4, 0], [5, 6, 0, 0]]
    assert trees.attends.shape == (2, 5, 5)
    assert trees.attends[0].int().tolist() == [
        [1, 0, 0, 0, 0],  # 1
        [1, 1, 0, 0, 0],  # 87
        [1, 1, 1, 0, 0],  # 4
        [1, 1, 1, 1, 0],  # 2
        [1, 1, 0, 0, 1],  # 5
    ]
    assert trees.attends.any(-1).all(), "what is padding has something to attend to"


def test_a_row_joins_a_tree_if_it_shares_half_and_fits():
    def sizes(rows, limit):
        tokens = torch.tensor(rows)
        return [
            tree.size
            for tree in build_trees(tokens, torch.full((len(tokens),), tokens.shape[1]), limit)
        ]

    assert sizes([[1, 2, 3, 4], [1, 2, 5, 6]], 6) == [6]
    assert sizes([[1, 2, 3, 4], [1, 2, 5, 6]], 5) == [4, 4]
    assert sizes([[1, 2, 3, 4], [1, 5, 6, 7]], 100) == [4, 4]
    assert sizes([[1, 2, 3, 4], [1, 2, 3, 4]], 4) == [4]
    assert sizes([[1, 2, 3, 4], [1, 2, 3, 4]], 0) == [4, 4]
    assert (
        build_trees(torch.zeros(0, 0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64), 100)
        == []
    )


def test_a_long_prompt_is_shared_and_long_replies_are_split():
    def trees(rows, prompt, reply):
        tokens = torch.arange(prompt).repeat(rows, 1)
        replies = torch.arange(rows * reply).view(rows, reply) + prompt
        return build_trees(
            torch.cat([tokens, replies], 1), torch.full((rows,), prompt + reply), 100_000
        )

    assert [tree.size for tree in trees(8, 4000, 32)] == [4000 + 8 * 32]
    # a fourth reply would make the attention 6000^2, where 5000^2 + 3000^2 do without
    assert [len(tree.rows) for tree in trees(6, 2000, 1000)] == [3, 3]


@pytest.mark.parametrize(
    "config", [LlamaConfig, Qwen2Config, Qwen3Config], ids=lambda config: config.model_type
)
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("critic", ["head", "model"])
def test_trees_have_the_outputs_and_gradients_of_their_rows(config, attention, critic):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config(**SMALL), attn_implementation=attention)
    policy = Policy(model.eval(), critic)
    torch.nn.init.normal_(policy.critic["head"].weight)
    batch = pack(episodes(seed=1))
    trees = build_trees(batch.tokens, batch.lengths, 100)
    assert sum(tree.size for tree in trees) < 0.7 * batch.lengths.sum()
    batch = batch.select(torch.tensor([row for tree in trees for row in tree.rows]))
    plain, gradient = taught(policy, batch, None)
    shared, same = taught(policy, batch, flatten(batch.tokens, trees))
    torch.testing.assert_close(shared, plain, atol=1e-5, rtol=1e-5)
    assert (same - gradient).norm() < 1e-4 * gradient.norm()


def episodes(seed):
    """Groups with a common prompt and shared whole turns, as in a tree search."""
    dice = random.Random(seed)

    def reply(longest):
        return dict.fromkeys(dice.sample(range(1, 128), dice.randint(1, longest)), -1.0)

    trajectories = []
    for group in range(4):
        prompt = [group, *dice.choices(range(128), k=dice.randint(5, 30))]
        first = [turn(prompt, reply(6)) for _ in range(2)]
        turns = [
            (dice.choice(first), turn(dice.choices(range(128), k=3), reply(6))) for _ in range(4)
        ]
        turns += [(turn(prompt, reply(9)),), (first[0],), turns[0]]
        trajectories += [
            trajectory(*each, name=f"t{group}-{i}", group=f"g{group}")
            for i, each in enumerate(turns)
        ]
    return trajectories


def taught(policy, batch, trees):
    """Log-probabilities, entropies and values, and the gradient of a sum of them with random
    weights.
    """
    policy.zero_grad()
    outputs = policy(batch.tokens, batch.sampled, 0.8, trees)
    weight = torch.randn(batch.tokens.shape, generator=torch.Generator().manual_seed(0))
    sum((weight * part).sum() for part in outputs).backward()
    return [part.detach() for part in outputs], torch.cat(
        [p.grad.flatten() for p in policy.parameters()]
    )
