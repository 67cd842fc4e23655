"""The parts of each algorithm that an experiment names, and its loss."""

import pkgutil
from dataclasses import fields, replace
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentfly_core import algorithms
from agentfly_core.config.import_path import algorithm_path, load
from agentfly_core.config.section import Section
from agentfly_core.rl.importance_sampling import TokenTIS
from agentfly_core.rl.interface import Needs
from agentfly_core.rl.kl import AdaptiveKL, LossKL, RewardKL
from agentfly_core.rl.policy_loss import Reinforce
from tests.support import reference
from tests.support.random_updates import WEIGHTS, by_trajectory, now, ragged, tokens

NAMES = sorted(module.name for module in pkgutil.iter_modules(algorithms.__path__))
MADE = {name: load(algorithm_path(name))() for name in NAMES}

GRPO = {
    "policy_loss": ("clip", 0.2, 0.2, None),  # low, high, dual
    "aggregation": ("token_mean",),
    "correction": None,
    "kl": None,
    "skip_cut": False,
    "credit": "tree_soft",
    "refills": 0,
    "needs": Needs(old_logprobs=True, off_policy="ratio", compares_group=True),
}
IMITATION = {"refills": 0, "needs": Needs(off_policy="imitation")}
UNGROUPED = Needs(old_logprobs=True, off_policy="ratio")
OF_TRAJECTORIES, OF_REPLIES = (
    {"aggregation": ("seq_mean_token_sum",)},
    {"aggregation": ("seq_mean_token_mean",)},
)
BUNDLES = {
    "cispo": GRPO
    | {"policy_loss": ("cispo", 1.0, 4.0)},  # weights from 0 to 5, as in ScaleRL (arXiv 2510.13786)
    "dapo": GRPO
    | {"policy_loss": ("clip", 0.2, 0.28, None), "overlong": None, "refills": 2}
    | {"needs": replace(GRPO["needs"], drops_equal_groups=True)},
    "dppo": GRPO | {"policy_loss": ("dppo_tv", 0.2, 0.2)},
    "dr_grpo": GRPO | {"aggregation": ("seq_sum_norm", 1024)},
    "gdpo": GRPO,
    "gigpo": GRPO | {"gamma": 0.95, "weight": 1.0},
    "grpo": GRPO,
    "gspo": GRPO | OF_REPLIES | {"policy_loss": ("gspo", 3e-4, 4e-4)},
    "max_rl": GRPO,
    "opo": GRPO | OF_TRAJECTORIES,
    "ppo": GRPO
    | {
        "gae": ("token", 1.0, 0.95),
        "critic": "head",
        "critic_rate": 10.0,
        "value_weight": 0.5,
        "value_clip": 0.2,
    }
    | {
        "needs": replace(
            UNGROUPED,
            critic="head",
            critic_rate=10.0,
            signals_before_advantages=True,
            trains_all_rows=True,
        )
    },
    "reinforce_pp": GRPO | {"gamma": 1.0, "needs": UNGROUPED},
    "reinforce_pp_baseline": GRPO,
    "remax": GRPO | OF_TRAJECTORIES | {"needs": replace(UNGROUPED, greedy_episode=True)},
    "rft": IMITATION | {"threshold": 1.0, "best": 4},
    "rloo": GRPO | OF_TRAJECTORIES,
    "sapo": GRPO | OF_REPLIES | {"policy_loss": ("sapo", 1.0, 1.05)},
    "sft": IMITATION,
}


@pytest.mark.parametrize("name", NAMES)
def test_an_algorithm_that_is_only_named_is_this(name):
    assert name in BUNDLES, f"say what {name} is made of: add it to BUNDLES"
    names = [*(field.name for field in fields(MADE[name])), "refills", "needs"]
    assert {setting: plain(getattr(MADE[name], setting)) for setting in names} == BUNDLES[name]


@pytest.mark.parametrize(
    ("settings", "needs"),
    [
        (
            {"kl": LossKL(reference="run:base@4")},
            {"reference": "run:base@4", "trains_all_rows": True},
        ),
        ({"kl": RewardKL()}, {"reference": "start", "signals_before_advantages": True}),
        ({"kl": AdaptiveKL()}, {"reference": "start", "signals_before_advantages": True}),
        ({"correction": TokenTIS()}, {"corrects_sampler": True}),
        ({"policy_loss": Reinforce()}, {"old_logprobs": False, "off_policy": "none"}),
        (
            {"policy_loss": Reinforce(), "correction": TokenTIS()},
            {"off_policy": "none", "corrects_sampler": True},
        ),
        (
            {"policy_loss": Reinforce(), "kl": RewardKL()},
            {"reference": "start", "off_policy": "none", "signals_before_advantages": True},
        ),
    ],
)
def test_settings_change_the_needs_of_an_algorithm(settings, needs):
    assert replace(MADE["grpo"], **settings).needs == replace(GRPO["needs"], **needs)


@pytest.mark.parametrize("kl", [None, LossKL(), RewardKL()])
def test_a_penalty_leaves_a_critic_its_needs(kl):
    needs = replace(MADE["ppo"], kl=kl).needs
    assert replace(needs, reference=None) == BUNDLES["ppo"]["needs"]
    assert needs.reference == (kl and "start")


def plain(value):
    return tuple(value.model_dump().values()) if isinstance(value, Section) else value


clip = partial(reference.clip, low=0.2, high=0.2, dual=None)
DEFINITIONS = {
    "cispo": (reference.grpo, partial(reference.cispo, low=1.0, high=4.0), reference.token_mean),
    "dapo": (
        reference.grpo,
        partial(reference.clip, low=0.2, high=0.28, dual=None),
        reference.token_mean,
    ),
    "dppo": (reference.grpo, partial(reference.dppo, low=0.2, high=0.2), reference.token_mean),
    "dr_grpo": (reference.dr_grpo, clip, partial(reference.seq_sum_norm, horizon=1024)),
    "gdpo": (partial(reference.gdpo, weights=WEIGHTS), clip, reference.token_mean),
    "gigpo": (partial(reference.gigpo, gamma=0.95, weight=1.0), clip, reference.token_mean),
    "grpo": (reference.grpo, clip, reference.token_mean),
    "gspo": (
        reference.grpo,
        partial(reference.gspo, low=3e-4, high=4e-4),
        reference.seq_mean_token_mean,
    ),
    "max_rl": (reference.max_rl, clip, reference.token_mean),
    "opo": (reference.opo, clip, reference.seq_mean_token_sum),
    "ppo": (partial(reference.ppo, gamma=1.0, lam=0.95), clip, reference.token_mean),
    "reinforce_pp": (partial(reference.reinforce_pp, gamma=1.0), clip, reference.token_mean),
    "reinforce_pp_baseline": (reference.reinforce_pp_baseline, clip, reference.token_mean),
    "remax": (reference.remax, clip, reference.seq_mean_token_sum),
    "rft": (
        partial(reference.rft, threshold=1.0, best=4),
        reference.reinforce,
        reference.mean_of_learned,
    ),
    "rloo": (reference.rloo, clip, reference.seq_mean_token_sum),
    "sapo": (
        reference.grpo,
        partial(reference.sapo, tau=1.0, tau_bad=1.05),
        reference.seq_mean_token_mean,
    ),
    "sft": (reference.sft, reference.reinforce, reference.token_mean),
}


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=5)
@given(seed=st.integers(0, 10_000))
def test_its_loss_and_gradient_match_the_definition(name, seed):
    assert name in DEFINITIONS, f"say how {name} is defined: add it to DEFINITIONS"
    algorithm, case = MADE[name], ragged(seed)
    estimate = algorithm.estimate_advantages(case.outcomes, case.batch)
    batch = replace(case.batch, advantages=estimate.advantages, returns=estimate.returns)
    outputs = now(batch, seed)
    loss = algorithm.loss(outputs, replace(batch, weight=algorithm.weights(batch))).total
    (slopes,) = torch.autograd.grad(loss, outputs.logprobs)
    expected, slope = defined(*DEFINITIONS[name], case, outputs)
    if name == "ppo":
        expected += 0.5 * of_the_critic(case, outputs)
    assert (loss.item(), slopes.sum().item()) == pytest.approx(
        (expected, slope), abs=1e-6, rel=1e-5
    )


def defined(advantages, loss, aggregation, case, outputs):
    """The loss, and how fast it grows when all log-probabilities do."""
    estimate = [iter(line) for line in advantages(case.stories)]
    lines = [[] for _ in case.stories]
    for row, _, token in tokens(outputs, case.batch):
        story = int(case.batch.trajectory[row])
        lines[story].append(loss(replace(token, advantage=next(estimate[story]))))
    return [aggregation([[one[part] for one in line] for line in lines]) for part in (0, 1)]


def of_the_critic(case, outputs):
    goals = [reference.by_token(story, 1.0, 0.95)[1] for story in case.stories]
    values = by_trajectory(outputs.values.detach(), case.batch, len(goals))
    lines = zip(values, (story.values for story in case.stories), goals, strict=True)
    return reference.token_mean(
        [[reference.value_loss(*one, 0.2) for one in zip(*line, strict=True)] for line in lines]
    )
