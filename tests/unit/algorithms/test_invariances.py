"""Invariances of every algorithm: order of rows, padding, split of a sum."""

import pkgutil
from dataclasses import fields, replace
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentfly_core import algorithms
from agentfly_core.algorithms.gdpo import GDPO
from agentfly_core.algorithms.gigpo import GiGPO
from agentfly_core.algorithms.grpo import GRPO
from agentfly_core.algorithms.ppo import PPO
from agentfly_core.algorithms.reinforce_pp import ReinforcePP
from agentfly_core.algorithms.rft import RFT
from agentfly_core.algorithms.rloo import RLOO
from agentfly_core.algorithms.sft import SFT
from agentfly_core.config.import_path import algorithm_path, load
from agentfly_core.records.trajectory import Ending
from agentfly_core.rl.aggregation import SeqMeanTokenMean, SeqMeanTokenSum, SeqSumNorm, TokenMean
from agentfly_core.rl.batch import RolloutBatch, pack
from agentfly_core.rl.importance_sampling import IcePop, SequenceMask, SequenceTIS, TokenTIS
from agentfly_core.rl.kl import LossKL, RewardKL
from agentfly_core.rl.policy_loss import CISPO, DPPO, GSPO, SAPO, Clip, Reinforce
from agentfly_core.testing.trajectories import trajectory, turn
from tests.support.generated_trajectories import earned
from tests.support.random_updates import by_trajectory, now, ragged

NAMES = sorted(module.name for module in pkgutil.iter_modules(algorithms.__path__))
MADE = {name: load(algorithm_path(name))() for name in NAMES}
ABSOLUTE = {
    "sft",
    "rft",
    "remax",
    "ppo",
    "reinforce_pp",
}  # these do not compare the episodes of a group
LOSSES = (Clip(), GSPO(), CISPO(), SAPO(), DPPO(), Reinforce())
AGGREGATIONS = (TokenMean(), SeqMeanTokenMean(), SeqMeanTokenSum(), SeqSumNorm(horizon=9))
CORRECTIONS = (
    TokenTIS(cap=1.1),
    SequenceTIS(cap=1.1),
    IcePop(low=0.8, high=1.2),
    SequenceMask(low=0.9, high=1.1),
    None,
)
PENALTIES = (LossKL(weight=0.1), RewardKL(weight=0.1), None)
seeds = given(seed=st.integers(0, 10_000))


def learning(algorithm, case):
    """The batch of a case with all inputs of the loss."""
    estimate = algorithm.estimate_advantages(case.outcomes, case.batch)
    batch = replace(case.batch, advantages=estimate.advantages, returns=estimate.returns)
    return replace(batch, weight=algorithm.weights(batch))


def named(algorithm):
    """`PPO-clip-token_mean-icepop-loss`."""
    sections = (
        getattr(algorithm, name, None)
        for name in ("policy_loss", "aggregation", "correction", "kl")
    )
    return "-".join([type(algorithm).__name__, *(section.use for section in sections if section)])


def total(algorithm, outputs, batch, rows=slice(None)):
    part = {field.name: getattr(batch, field.name)[rows] for field in fields(batch)}
    selected = {field.name: getattr(outputs, field.name)[rows] for field in fields(outputs)}
    return algorithm.loss(replace(outputs, **selected), RolloutBatch(**part)).total


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=5)
@given(order=st.permutations(range(8)))
def test_the_order_of_trajectories_does_not_matter(name, order):
    algorithm, case, other = MADE[name], ragged(1), ragged(1, order)
    other = replace(other, batch=_same_signals(case, other, order))
    actual, expected = (algorithm.estimate_advantages(c.outcomes, c.batch) for c in (other, case))
    for one, its in ((actual.advantages, expected.advantages), (actual.returns, expected.returns)):
        mine, theirs = by_trajectory(one, other.batch, 8), by_trajectory(its, case.batch, 8)
        assert mine == [pytest.approx(theirs[i], abs=1e-6) for i in order]


@pytest.mark.parametrize("best", [2, 4, 6])
@settings(max_examples=10)
@given(order=st.permutations(range(6)))
def test_the_first_of_the_best_successes_are_imitated(best, order):
    rewards = [0.9, 0.7, 0.9, 0.1, 0.9, 0.6]
    group = [trajectory(turn([1], {3: -1.0}), name=f"t{i}") for i in order]
    advantages = (
        RFT(threshold=0.5, best=best)
        .estimate_advantages(earned(group, [rewards[i] for i in order]), pack(group))
        .advantages
    )
    expected = [*(i for i in order if rewards[i] == 0.9), 1, 5][:best]
    assert advantages[:, 1].tolist() == [float(i in expected) for i in order]


def _same_signals(case, other, order):
    """The signals of a case, in the rows where the other has the same trajectories."""
    rows = torch.cat([(case.batch.trajectory == i).nonzero().flatten() for i in order])
    assert torch.equal(case.batch.tokens[rows], other.batch.tokens)
    return replace(other.batch, old_values=case.batch.old_values[rows])


PADDED = [*MADE.values(), *(GRPO(correction=c, kl=k) for c, k in product(CORRECTIONS, PENALTIES))]


@pytest.mark.parametrize("algorithm", PADDED, ids=named)
@seeds
@settings(max_examples=10)
def test_padding_does_not_matter(algorithm, seed):
    case = ragged(seed)
    wider = replace(case, batch=_wider(case.batch))
    batch, padded = learning(algorithm, case), learning(algorithm, wider)
    assert torch.equal(padded.advantages, _wide(batch.advantages))
    outputs = now(case.batch, seed)
    wide = replace(outputs, **{f.name: _wide(getattr(outputs, f.name)) for f in fields(outputs)})
    assert total(algorithm, wide, padded).item() == pytest.approx(
        total(algorithm, outputs, batch).item(), abs=1e-6
    )


def _wide(tensor):
    return torch.cat([tensor, torch.zeros(len(tensor), 3, dtype=tensor.dtype)], dim=1)


def _wider(batch: RolloutBatch):
    parts = {field.name: getattr(batch, field.name) for field in fields(batch)}
    return replace(batch, **{name: _wide(part) for name, part in parts.items() if part.dim() == 2})


@pytest.mark.parametrize("name", sorted({*NAMES} - ABSOLUTE))
def test_groups_of_equal_rewards_teach_nothing(name):
    algorithm = GiGPO(gamma=1.0) if name == "gigpo" else MADE[name]
    talk = trajectory(turn([1], {3: -1.0}), turn([2], {4: -1.0, 5: -1.0}))
    group = [
        talk,
        trajectory(turn([1], {3: -1.0})),
        talk,
        replace(talk, group="other"),
        replace(talk, group="alone"),
    ]
    parts = [{"exact": 0.1}] * 3 + [{"exact": 0.7}, {"exact": 0.3}]
    outcomes = earned(group, [0.1, 0.1, 0.1, 0.7, 0.3], parts=parts, weights={"exact": 1.0})
    assert algorithm.estimate_advantages(outcomes, pack(group)).advantages.eq(0).all()


@pytest.mark.parametrize("name", NAMES)
def test_an_update_without_any_row_is_possible(name):
    nothing = pack([])
    estimate = MADE[name].estimate_advantages(
        earned([], [], nothing, weights={"exact": 1.0}), nothing
    )
    assert (estimate.advantages.shape, estimate.returns.shape) == ((0, 0), (0, 0))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "seed", [1, 2, 3]
)  # with others all rewards of each group are equal, or all ratios clipped
def test_only_sampled_tokens_have_a_gradient(name, seed):
    algorithm, case = MADE[name], ragged(seed)
    batch, outputs = learning(algorithm, case), now(case.batch, seed)
    total(algorithm, outputs, batch).backward()
    assert outputs.logprobs.grad[~batch.sampled].eq(0).all()
    assert outputs.logprobs.grad[batch.sampled & (batch.advantages != 0)].ne(0).any()
    if algorithm.needs.critic != "none":
        assert outputs.values.grad[~batch.sampled].eq(0).all()
        assert outputs.values.grad[batch.sampled].ne(0).any()


WHOLE = [
    PPO(
        policy_loss=policy_loss,
        aggregation=aggregation,
        correction=correction,
        kl=LossKL(weight=0.1),
    )
    for policy_loss, aggregation, correction in product(LOSSES, AGGREGATIONS, CORRECTIONS)
]


@pytest.mark.parametrize("algorithm", [*WHOLE, RFT(), SFT()], ids=named)
@seeds
@settings(max_examples=3)
def test_a_loss_is_the_sum_over_any_split_of_its_rows(algorithm, seed):
    case = ragged(seed)
    batch, outputs = learning(algorithm, case), now(case.batch, seed)
    rows = torch.randperm(len(batch.lengths), generator=torch.Generator().manual_seed(seed))
    parts = rows.tensor_split([1, 2, 5])
    whole, summed = (
        total(algorithm, outputs, batch),
        sum(total(algorithm, outputs, batch, part) for part in parts),
    )
    assert summed.item() == pytest.approx(whole.item(), abs=1e-5)
    heard = (outputs.logprobs, outputs.values)  # of imitation no gradient comes to the second
    slopes = (
        torch.autograd.grad(t, heard, allow_unused=True, materialize_grads=True)
        for t in (whole, summed)
    )
    for one, other in zip(*slopes, strict=True):
        assert torch.allclose(one, other, atol=1e-6)


@pytest.mark.parametrize(
    "penalty", [LossKL(weight=0.5), RewardKL(weight=0.5)], ids=lambda penalty: penalty.use
)
def test_a_penalty_is_felt_where_the_policy_has_moved_away(penalty):
    group = [trajectory(turn([1], {3: -1.0})), trajectory(turn([1], {3: -1.0}))]
    batch = replace(pack(group), reference_logprobs=torch.tensor([[0.0, -1.0], [0.0, -3.0]]))
    algorithm = GRPO(kl=penalty)
    batch = replace(
        batch, advantages=algorithm.estimate_advantages(earned(group, [1.0, 1.0]), batch).advantages
    )
    batch = replace(batch, weight=algorithm.weights(batch))
    outputs = replace(now(batch, 0), logprobs=batch.old_logprobs.clone().requires_grad_())
    total(algorithm, outputs, batch).backward()
    far, near = outputs.logprobs.grad[1, 1].item(), outputs.logprobs.grad[0, 1].item()
    assert (far > 0, near <= 0) == (True, True)


def test_skip_cut_keeps_a_cut_episode_in_the_group_mean():
    whole, cut = (trajectory(turn([1], {3: -1.0})) for _ in range(2))
    group = [whole, replace(cut, ending=Ending.MAX_TURNS)]
    estimate = GRPO(skip_cut=True).estimate_advantages(earned(group, [1.0, 0.0]), pack(group))
    assert estimate.advantages[:, 1].tolist() == [pytest.approx(0.5**0.5, abs=1e-5), 0.0]


@pytest.mark.parametrize(
    ("aggregation", "weight"),
    [
        (TokenMean(), 1 / 20),
        (SeqMeanTokenMean(), 1 / 2 / 10),
        (SeqMeanTokenSum(), 1 / 2),
        (SeqSumNorm(horizon=10), 1 / 2 / 10),
    ],
    ids=lambda value: getattr(value, "use", ""),
)
def test_skip_cut_leaves_cut_episodes_out_of_denominators(aggregation, weight):
    whole = trajectory(turn([1], dict.fromkeys(range(2, 12), -1.0)))
    cut = replace(trajectory(turn([1], dict.fromkeys(range(90), -1.0))), ending=Ending.MAX_TURNS)
    weights = GRPO(skip_cut=True, aggregation=aggregation).weights(pack([whole, cut, whole]))
    assert weights[0, 1:11].tolist() == [pytest.approx(weight)] * 10
    assert weights[1].tolist() == [0.0] * 91


def test_rewards_that_differ_by_rounding_have_no_advantage():
    group = [trajectory(turn([1], {3: -1.0})) for _ in range(3)]
    parts = [{"exact": reward} for reward in (0.3, 0.1 + 0.2, 0.30000001192092896)]
    outcomes = earned(group, [part["exact"] for part in parts], parts=parts, weights={"exact": 1.0})
    for algorithm in (GRPO(), GDPO(), RLOO(), ReinforcePP()):
        advantages = algorithm.estimate_advantages(outcomes, pack(group)).advantages
        assert not advantages.any(), algorithm


def test_an_advantage_of_a_hundred_thousandth_is_no_rounding():
    group = [trajectory(turn([1], {3: -1.0})) for _ in range(2)]
    advantages = RLOO().estimate_advantages(earned(group, [0.3, 0.30001]), pack(group)).advantages
    assert advantages[:, 1].tolist() == pytest.approx([-1e-5, 1e-5])
