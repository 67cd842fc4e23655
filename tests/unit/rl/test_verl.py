"""verl finds the same advantages and gradients on random ragged masks. Skipped where it cannot be
imported:

pip install --no-deps --target only-verl verl==0.9.1 ray tensordict omegaconf \
    antlr4-python3-runtime==4.9.3 hydra-core codetiming msgpack orjson pyvers
PYTHONPATH=only-verl python -m pytest tests/unit/rl/test_verl.py
"""

import importlib
import random
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from agentfly_core.algorithms.dr_grpo import DrGRPO
from agentfly_core.algorithms.gdpo import GDPO
from agentfly_core.algorithms.grpo import GRPO
from agentfly_core.algorithms.opo import OPO
from agentfly_core.algorithms.ppo import PPO
from agentfly_core.algorithms.reinforce_pp import ReinforcePP
from agentfly_core.algorithms.reinforce_pp_baseline import ReinforcePPBaseline
from agentfly_core.algorithms.remax import ReMax
from agentfly_core.algorithms.rloo import RLOO
from agentfly_core.rl.advantage import sequences
from agentfly_core.rl.aggregation import SeqMeanTokenMean, SeqMeanTokenSum, SeqSumNorm, TokenMean
from agentfly_core.rl.batch import pack
from agentfly_core.rl.gae import TokenGAE
from agentfly_core.rl.kl import kl
from agentfly_core.rl.policy_loss import CISPO, DPPO, GSPO, SAPO, Clip
from tests.support.generated_trajectories import crowd, earned
from tests.support.random_updates import now

verl = pytest.importorskip("verl.trainer.ppo.core_algos")
SEEDS = range(10)
BOUNDS = {"low": 0.1, "high": 0.3}
LOSSES = [
    (Clip(**BOUNDS, dual=1.5), "vanilla"),
    (GSPO(**BOUNDS), "gspo"),
    (CISPO(**BOUNDS), "cispo"),
    (SAPO(), "sapo"),
    (DPPO(**BOUNDS), "dppo_tv"),
]
AGGREGATIONS = [
    (TokenMean(), "token-mean"),
    (SeqMeanTokenMean(), "seq-mean-token-mean"),
    (SeqMeanTokenSum(), "seq-mean-token-sum"),
    (SeqSumNorm(horizon=9), "seq-mean-token-sum-norm"),
]
FOR_SAPO = "seq-mean-token-mean"  # verl takes no other for it, whatever is asked for
PAIRS = [
    pair for pair in product(LOSSES, AGGREGATIONS) if pair[0][1] != "sapo" or pair[1][1] == FOR_SAPO
]


@pytest.fixture(params=SEEDS)
def case(request):
    """Groups of 2 to 4 episodes with rewards and the signals of sampler, old policy, reference and
    critic.
    """
    dice, generator = random.Random(request.param), torch.Generator().manual_seed(request.param)
    everybody = crowd(
        6, 4, seed=request.param
    )  # a group of one has no advantage here; verl uses its reward
    trajectories = [
        t for group in range(6) for t in everybody[4 * group : 4 * group + dice.randint(2, 4)]
    ]
    parts = [{"exact": dice.random(), "brief": dice.random()} for _ in trajectories]
    rewards = [part["exact"] + 0.3 * part["brief"] for part in parts]
    batch = pack(trajectories)

    def near(base):
        return (base + 0.4 * torch.randn(base.shape, generator=generator)) * batch.sampled

    signals = {
        name: near(batch.rollout_logprobs)
        for name in ("old_logprobs", "reference_logprobs", "advantages")
    }
    batch = replace(batch, **signals, old_values=near(torch.zeros_like(batch.weight)))
    greedy = {f"g{i}": dice.random() for i in range(6)}
    outcomes = earned(
        trajectories,
        rewards,
        batch,
        parts=parts,
        weights={"exact": 1.0, "brief": 0.3},
        greedy=greedy,
    )
    groups = np.array([t.group for t in trajectories])
    return batch, outcomes, groups, now(batch, request.param)


def theirs(name, batch, outcomes, groups):
    """Advantages of verl for the same episodes."""
    layout = sequences(batch, len(outcomes.rewards))
    rewards, mask = layout.scatter(outcomes.token_rewards).float(), batch.sampled.float()
    if name == "gae":
        return verl.compute_gae_advantage_return(rewards, batch.old_values, mask, 0.9, 0.8)[0]
    if name == "gdpo":
        parts = {key: part.numpy() for key, part in outcomes.parts.items()}
        config = {
            "gdpo_reward_keys": list(parts),
            "gdpo_reward_weights": [outcomes.weights[key] for key in parts],
        }
        ones = {
            "prompts": torch.zeros(len(mask), 0),
            "attention_mask": torch.ones(mask.shape, dtype=torch.int64),
        }
        return verl.compute_gdpo_outcome_advantage(
            rewards, mask, groups, config=config, non_tensor_batch=parts, batch=ones
        )[0]
    if name == "remax":
        return verl.compute_remax_outcome_advantage(rewards, outcomes.baselines.float(), mask)[0]
    if name == "reinforce_plus_plus":
        config = type("Config", (), {"gamma": 0.9})()
        return verl.compute_reinforce_plus_plus_outcome_advantage(rewards, mask, config=config)[0]
    if name == "dr_grpo":
        return verl.compute_grpo_outcome_advantage(
            rewards, mask, groups, norm_adv_by_std_in_grpo=False
        )[0]
    return verl.ADV_ESTIMATOR_REGISTRY[name](rewards, mask, groups)[0]


@pytest.mark.parametrize(
    ("ours", "name"),
    [
        (GRPO(), "grpo"),
        (DrGRPO(), "dr_grpo"),
        (RLOO(), "rloo"),
        (OPO(), "opo"),
        (ReMax(), "remax"),
        (GDPO(), "gdpo"),
        (ReinforcePP(gamma=0.9), "reinforce_plus_plus"),
        (ReinforcePPBaseline(), "reinforce_plus_plus_baseline"),
        (PPO(gae=TokenGAE(gamma=0.9, lam=0.8)), "gae"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_verl_finds_the_same_advantages(case, ours, name):
    batch, outcomes, groups, _ = case
    advantages = ours.estimate_advantages(outcomes, batch).advantages
    assert (advantages - theirs(name, batch, outcomes, groups))[batch.sampled].abs().max() < 3e-6


@pytest.mark.parametrize(("loss", "aggregation"), PAIRS, ids=lambda pair: pair[1])
def test_verl_finds_the_same_gradient(case, loss, aggregation):
    config = importlib.import_module("verl.workers.config").ActorConfig
    batch, _, _, outputs = case
    (ours, name), (sums, mode) = loss, aggregation
    batch = replace(batch, rollout_logprobs=batch.old_logprobs)
    algorithm = GRPO(policy_loss=ours, aggregation=sums)
    algorithm.loss(outputs, replace(batch, weight=algorithm.weights(batch))).total.backward()
    logprobs = outputs.logprobs.detach().requires_grad_()
    settings = config(
        strategy="fsdp",
        rollout_n=1,
        use_dynamic_bsz=True,
        clip_ratio_low=0.1,
        clip_ratio_high=0.3,
        clip_ratio_c=1.5 if name == "vanilla" else 1e6,
        tau_pos=1.0,
        tau_neg=1.05,
        global_batch_info={},
    )
    if mode.endswith("norm"):
        settings.global_batch_info["loss_scale_factor"] = 9
    verl.get_policy_loss_fn(name)(
        old_log_prob=batch.old_logprobs,
        log_prob=logprobs,
        advantages=batch.advantages,
        response_mask=batch.sampled.float(),
        loss_agg_mode=mode,
        config=settings,
    )[0].backward()
    assert (outputs.logprobs.grad - logprobs.grad).abs().max() < 1e-6


@pytest.mark.parametrize("kind", ["k1", "k2", "k3", "abs"])
def test_verl_estimates_the_same_divergence(case, kind):
    batch, *_ = case
    divergence = kl(batch.old_logprobs, batch.reference_logprobs, kind)
    assert (
        divergence - verl.kl_penalty(batch.old_logprobs, batch.reference_logprobs, kind)
    ).abs().max() < 1e-6


def test_verl_has_the_same_loss_of_a_critic(case):
    batch, outcomes, _, outputs = case
    estimate = PPO().estimate_advantages(outcomes, batch)
    batch = replace(batch, returns=estimate.returns, advantages=torch.zeros_like(batch.weight))
    algorithm = PPO(value_weight=1.0)
    loss = algorithm.loss(outputs, replace(batch, weight=algorithm.weights(batch))).total
    expected, _ = verl.compute_value_loss(
        outputs.values, batch.returns, batch.old_values, batch.sampled.float(), 0.2
    )
    assert loss.item() == pytest.approx(expected.item(), abs=1e-6)
