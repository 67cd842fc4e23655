"""Algorithms in an experiment file."""

import json
import pkgutil
from dataclasses import fields

import pytest

from agentfly_core import algorithms
from agentfly_core.config import loading
from agentfly_core.config.import_path import algorithm_path, load
from agentfly_core.config.parts import AlgorithmPart
from agentfly_core.experiment import checks
from tests.support.experiments import TINY

NAMES = sorted({module.name for module in pkgutil.iter_modules(algorithms.__path__)} - {"sft"})


def checked(folder, *overrides):
    (folder / "tiny.yaml").write_text(TINY)
    settings = loading.read(str(folder / "tiny.yaml"), overrides).settings
    checks.check(settings)
    return settings


@pytest.mark.parametrize("name", NAMES)
def test_the_name_of_an_algorithm_brings_its_defaults(name, tmp_path):
    part = checked(tmp_path, f"algorithm={name}").algorithm
    made = part.make()
    assert made == load(algorithm_path(name))()
    settings = json.loads(json.dumps(part.model_dump(mode="json")))
    assert {*settings} - {"use"} == {field.name for field in fields(made)}
    assert AlgorithmPart.model_validate(settings).make() == made


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["algorithm={use: grpo, gamma: 0.9}"], "GRPO has no setting 'gamma'"),
        (["algorithm={use: rft, policy_loss: clip}"], "RFT has no setting 'policy_loss'"),
        (
            ["algorithm={use: grpo, policy_loss: {use: cispo, dual: 3}}"],
            r"policy_loss.cispo.dual: Extra inputs",
        ),
        (
            ["algorithm={use: grpo, policy_loss: clipp}"],
            r"policy_loss: .*'clip', 'gspo', 'cispo'.* \(got",
        ),
        (
            ["algorithm={use: dr_grpo, aggregation: seq_sum_norm}"],
            "aggregation.seq_sum_norm.horizon: Field required",
        ),
        (
            ["algorithm={use: grpo, kl: {use: loss, kind: k1}}"],
            r"kl.loss.kind: Input should be 'k2', 'k3' or 'abs'",
        ),
        (
            ["algorithm={use: ppo, gae: {use: token, gamma_turn: 1}}"],
            "gae.token.gamma_turn: Extra inputs",
        ),
        (
            ["algorithm={use: max_rl, kl: reward}"],
            "algorithm.kl.use: got 'reward', expected 'loss'. MaxRL",
        ),
        (
            ["algorithm={use: dapo, overlong: {longest: 8, buffer: 9}}"],
            "buffer is 9, but longest is 8",
        ),
        (["algorithm=grpoo"], "Did you mean 'grpo'"),
        (
            ["algorithm=sft"],
            "sft, which imitates all episodes regardless of their rewards: choose rft .*, or "
            "set warm_start",
        ),
        (
            ["algorithm={use: grpo, correction: token_tis}", "update.old_logprobs=sampler"],
            "both correct for the difference between sampler and learner",
        ),
        (
            ["algorithm={use: remax, policy_loss: reinforce}", "update.old_logprobs=sampler"],
            "ReMax does not compare with an old policy. Remove",
        ),
        (
            ["rollout.max_staleness=1"],
            "max_staleness is 1, but nothing corrects for episodes of an older policy",
        ),
        (
            [
                "algorithm={use: grpo, policy_loss: reinforce, kl: reward}",
                "update.old_logprobs=sampler",
                "rollout.max_staleness=1",
            ],
            "nothing corrects for episodes of an older policy.* an algorithm.policy_loss with a "
            "ratio",
        ),
        (
            [
                "algorithm={use: remax, policy_loss: reinforce}",
                "update={epochs: 2, mini_batches: 3}",
            ],
            "mini_batches is 6, but .*ReMax allows only 1 optimizer step",
        ),
        (
            ["rollout.group_size=1"],
            "group_size is 1, but .*GRPO learns from differences between several episodes",
        ),
        (
            ["algorithm=ppo", "rollout.refills=1"],
            "refills is 1, but .*PPO also learns from problems whose episodes have equal",
        ),
        (
            ["algorithm=remax", 'rewards={"tests.support.process_parts:rank": 1.0}'],
            "The reward 'rank' compares the sampled episodes .* the greedy episode that .* needs",
        ),
        (
            ["algorithm={use: grpo, kl: {use: loss, reference: run:base}}"],
            "expected start, or run:NAME@STEP",
        ),
    ],
)
def test_a_setting_that_the_algorithm_does_not_use_is_refused(overrides, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        checked(tmp_path, *overrides)


@pytest.mark.parametrize(
    ("overrides", "refills"),
    [
        (["algorithm=grpo"], 0),
        (["algorithm=dapo"], 2),
        (["algorithm=dapo", "rollout.refills=0"], 0),
        (["algorithm=grpo", "rollout={refills: 3}"], 3),
    ],
)
def test_refills_default_to_those_of_the_algorithm(overrides, refills, tmp_path):
    assert checked(tmp_path, "data.train=64", *overrides).rollout.refills == refills


class Half:
    """An incomplete algorithm."""

    refills = 0


def test_an_incomplete_algorithm_is_refused_by_its_gaps(tmp_path):
    with pytest.raises(
        ValueError,
        match=r"Half .*: .*after, .*, measures, needs, weights\.",
    ):
        checked(tmp_path, "algorithm=tests.unit.algorithms.test_experiment_file:Half")


@pytest.mark.parametrize(
    "overrides",
    [
        ["algorithm=rft", "update={epochs: 2, mini_batches: 3}", "rollout.max_staleness=1"],
        [
            "algorithm={use: grpo, policy_loss: reinforce, correction: token_tis}",
            "rollout.max_staleness=1",
        ],
        [
            "algorithm=grpo",
            "update={mini_batches: 3, old_logprobs: sampler}",
            "rollout.max_staleness=1",
        ],
    ],
)
def test_tokens_of_an_older_policy_are_imitated_or_corrected_for(overrides, tmp_path):
    assert checked(tmp_path, *overrides).rollout.max_staleness == 1


@pytest.mark.parametrize("name", ["ppo", "reinforce_pp", "remax", "rft"])
def test_an_algorithm_without_comparison_needs_no_group(name, tmp_path):
    assert checked(tmp_path, f"algorithm={name}", "rollout.group_size=1").rollout.group_size == 1
