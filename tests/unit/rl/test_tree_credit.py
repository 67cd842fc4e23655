"""`credit: tree_hard`: tokens that leaves of forks share have the mean of their advantages."""

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from agentfly_core.algorithms.dapo import DAPO
from agentfly_core.algorithms.grpo import GRPO
from agentfly_core.algorithms.rloo import RLOO
from agentfly_core.records.parquet import read_trajectories, write_trajectories
from agentfly_core.records.trajectory import Branch, Ending, Trajectory, Turn, Unscored
from agentfly_core.rl.batch import pack, predictors, token_logprobs
from agentfly_core.rl.interface import Outputs
from agentfly_core.rl.policy_gradient import PolicyGradient
from agentfly_core.testing.learning import advantages_of, update_job
from agentfly_core.testing.trajectories import trajectory, turn
from agentfly_core.training.data import read_update_data
from tests.support.generated_trajectories import earned

SOFT, HARD = GRPO(), GRPO(credit="tree_hard")
VOCABULARY = 512


def leaf(
    number: int, *turns: Turn, parent: Trajectory | None = None, shared: int = 0
) -> Trajectory:
    begun = trajectory(*(parent.turns[:shared] if parent else ()), *turns, name=f"t{number}")
    branch = Branch(parent.id, shared) if parent else None
    return replace(begun, chain=number, branch=branch)


def two_branches() -> list[Trajectory]:
    """Two leaves that share a turn of two tokens, and two chains."""
    parent = leaf(0, turn([1], {10: -0.1, 11: -0.1}), turn([2], {12: -0.1}))
    child = leaf(2, turn([2], {13: -0.1}), parent=parent, shared=1)
    return [parent, leaf(1, turn([1], {14: -0.1})), child, leaf(3, turn([1], {15: -0.1}))]


def random_tree(seed: int, leaves: int = 8) -> list[Trajectory]:
    """Leaves with forks of forks at random turns; each sampled token occurs in one turn only."""
    dice, token = random.Random(seed), iter(range(20, VOCABULARY))

    def turns(count: int) -> list[Turn]:
        return [
            turn(
                [dice.randrange(1, 20)],
                {next(token): -0.1 for _ in range(dice.randint(1, 3))},
                context=dice.randint(0, 1),
            )
            for _ in range(count)
        ]

    played = [leaf(number, *turns(dice.randint(1, 4))) for number in range(2)]
    while len(played) < leaves:
        parent = dice.choice(played)
        shared = dice.randrange(len(parent.turns))
        own = turns(dice.randint(1, 3))
        played.append(leaf(len(played), *own, parent=parent if shared else None, shared=shared))
    # the time of a reply is its place in the whole path
    return [
        replace(one, turns=tuple(replace(t, call=n) for n, t in enumerate(one.turns)))
        for one in played
    ]


def tokens(one: Trajectory) -> list[int]:
    """The sampled tokens in the order of time."""
    return [token for each in one.turns for span in each.sampled for token in span.tokens]


def oracle(
    algorithm: PolicyGradient, played: Sequence[Trajectory], rewards: Sequence[float]
) -> list[list[float]]:
    """For each token the mean of the advantages of all leaves that contain it."""
    soft, of_token = advantages_of(algorithm, played, rewards), defaultdict[int, list[float]](list)
    for one, advantages in zip(played, soft, strict=True):
        for token, advantage in zip(tokens(one), advantages, strict=True):
            of_token[token].append(advantage)
    return [[fmean(of_token[token]) for token in tokens(one)] for one in played]


def test_a_shared_prefix_has_the_mean_of_its_branches() -> None:
    soft, hard = (advantages_of(one, two_branches(), [1, 0, 0, 0]) for one in (SOFT, HARD))
    lose = pytest.approx(-0.5, abs=1e-5)
    win, mean = pytest.approx(1.5, abs=1e-5), pytest.approx(0.5, abs=1e-5)
    assert soft == [[win, win, win], [lose], [lose, lose, lose], [lose]]
    assert hard == [[mean, mean, win], [lose], [mean, mean, lose], [lose]]


@pytest.mark.parametrize("algorithm", [GRPO(), RLOO(), DAPO()], ids=["grpo", "rloo", "dapo"])
@pytest.mark.parametrize("seed", range(20))
def test_nested_forks_equal_a_brute_force_oracle(algorithm: PolicyGradient, seed: int) -> None:
    played, dice = random_tree(seed), random.Random(seed)
    rewards = [float(dice.randint(0, 3)) for _ in played]
    hard = advantages_of(replace(algorithm, credit="tree_hard"), played, rewards)
    for actual, expected in zip(hard, oracle(algorithm, played, rewards), strict=True):
        assert actual == pytest.approx(expected, abs=1e-6)


def test_branches_are_the_same_after_they_were_stored(tmp_path: Path) -> None:
    played = random_tree(3)
    write_trajectories(tmp_path / "episodes.parquet", played)
    rewards = [float(number % 3) for number in range(len(played))]
    stored = read_trajectories(tmp_path / "episodes.parquet")
    assert advantages_of(HARD, stored, rewards) == advantages_of(HARD, played, rewards)


def test_children_share_tokens_of_a_parent_that_is_left_out() -> None:
    parent, other, child, last = two_branches()
    sibling = leaf(4, turn([2], {16: -0.1}), parent=parent, shared=1)
    hard = advantages_of(HARD, [other, child, last, sibling], [0, 1, 0, 0])
    mean = pytest.approx(0.5, abs=1e-5)
    assert hard[1][:2] == hard[3][:2] == [mean, mean]


def test_leaves_share_tokens_across_an_unscored_fork(tmp_path: Path) -> None:
    root = leaf(0, turn([1], {10: -0.1}), turn([2], {11: -0.1}))
    middle = leaf(1, turn([2], {12: -0.1}), turn([3], {13: -0.1}), parent=root, shared=1)
    child = leaf(2, turn([4], {14: -0.1}), parent=middle, shared=2)
    other = leaf(3, turn([4], {15: -0.1}), parent=middle, shared=2)
    rewards = [1.0, Unscored("judge: TimeoutError"), 0.0, 0.0]
    data = read_update_data(update_job(tmp_path, [root, middle, child, other], rewards))
    hard, soft = (
        one.estimate_advantages(data.outcomes, data.batch).advantages[data.batch.sampled].tolist()
        for one in (HARD, SOFT)
    )
    # the tokens 10, 11 of the root, and 10, 12, 14 and 10, 12, 15 of the scored children
    win, lose = soft[0], soft[2]
    of_all = fmean([win, lose, lose])
    assert hard == pytest.approx([of_all, win, of_all, lose, lose, of_all, lose, lose], abs=1e-6)


def test_a_reply_that_one_leaf_discards_shifts_no_later_token() -> None:
    parent = leaf(0, *(turn([n], {10 + n: -0.1}) for n in range(3)))
    child = leaf(1, turn([3], {20: -0.1}), parent=parent, shared=2)
    silent = replace(parent.turns[0].sampled[0], trained=False)
    discards = replace(parent.turns[0], sampled=(silent,))
    parent = replace(parent, turns=(discards, *parent.turns[1:]))
    hard = advantages_of(HARD, [parent, child], [1, 0])
    assert [len(one) for one in hard] == [2, 3]
    assert hard[0][0] == hard[1][1] == pytest.approx(0.0, abs=1e-6)
    assert hard[0][1] > 0.5 > -0.5 > hard[1][0]


def test_both_count_a_token_once_per_leaf() -> None:
    batch = pack(two_branches())
    assert SOFT.weights(batch).sum() == HARD.weights(batch).sum() == pytest.approx(1.0)
    assert int((HARD.weights(batch) > 0).sum()) == 8


def test_cut_leaves_have_no_part_in_the_mean() -> None:
    parent, *others = two_branches()
    played = [replace(parent, ending=Ending.MAX_TURNS), *others]
    algorithm = replace(HARD, skip_cut=True)
    hard = advantages_of(algorithm, played, [1, 0, 0, 0])
    assert hard[0] == [0, 0, 0]
    assert hard[2] == pytest.approx([-0.5, -0.5, -0.5], abs=1e-5)


def gradient(algorithm: PolicyGradient, played: Sequence[Trajectory]) -> torch.Tensor:
    """The gradient of the loss at ratio 1 in all weights of a small model, in float64."""
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
        )
    ).double()
    batch = pack(played)
    rewards = [float(number % 3 == 0) for number in range(len(played))]
    estimate = algorithm.estimate_advantages(earned(played, rewards, batch), batch)
    batch = replace(batch, advantages=estimate.advantages, weight=algorithm.weights(batch))
    logits = model(batch.tokens).logits[predictors(batch.sampled)]
    chosen, _ = token_logprobs(logits, batch.tokens[batch.sampled], 1.0)
    logprobs = torch.zeros_like(batch.rollout_logprobs).masked_scatter(batch.sampled, chosen)
    batch = replace(batch, old_logprobs=logprobs.detach())
    nothing = torch.zeros_like(logprobs)
    algorithm.loss(Outputs(logprobs, nothing, nothing), batch).total.backward()
    return torch.cat([weight.grad.flatten() for weight in model.parameters()])


@pytest.mark.parametrize("seed", range(3))
def test_hard_and_soft_have_equal_gradients_at_ratio_one(seed: int) -> None:
    played = random_tree(seed)
    soft, hard = gradient(SOFT, played), gradient(HARD, played)
    assert soft.abs().max() > 1e-3
    assert (soft - hard).abs().max() < 1e-6
