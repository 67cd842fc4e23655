"""Algorithms in an experiment file."""

import json
import pkgutil
from dataclasses import fields

import pytest
from test_experiment import TINY

from agentfly_core import algorithms, experiment
from agentfly_core.config import AlgorithmPart
from agentfly_core.parts import full_name, load

NAMES = sorted(module.name for module in pkgutil.iter_modules(algorithms.__path__))


def checked(folder, *overrides):
    (folder / "tiny.yaml").write_text(TINY)
    science = experiment.read(str(folder / "tiny.yaml"), overrides).science
    experiment.check(science)
    return science


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_enough_and_all_its_defaults_are_told(name, tmp_path):
    part = checked(tmp_path, f"algorithm={name}").algorithm
    made = part.make()
    assert made == load(full_name(name, "agentfly_core.algorithms"))()
    told = json.loads(json.dumps(part.model_dump(mode="json")))
    assert {*told} - {"use"} == {field.name for field in fields(made)}
    assert AlgorithmPart.model_validate(told).make() == made


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["algorithm={use: grpo, gamma: 0.9}"], "GRPO has no setting 'gamma'"),
        (["algorithm={use: rft, policy_loss: clip}"], "RFT has no setting 'policy_loss'"),
        (["algorithm={use: grpo, policy_loss: {use: cispo, dual: 3}}"], r"policy_loss.cispo.dual: Extra inputs"),
        (["algorithm={use: grpo, policy_loss: clipp}"], r"policy_loss: .*'clip', 'gspo', 'cispo'.* \(got"),
        (["algorithm={use: dr_grpo, aggregation: seq_sum_norm}"], "aggregation.seq_sum_norm.horizon: Field required"),
        (["algorithm={use: grpo, kl: {use: loss, kind: k1}}"], r"kl.loss.kind: Input should be 'k2', 'k3' or 'abs'"),
        (["algorithm={use: ppo, gae: {use: token, gamma_turn: 1}}"], "gae.token.gamma_turn: Extra inputs"),
        (["algorithm={use: max_rl, kl: reward}"], "algorithm.kl: MaxRL needs rewards of 0 and more, got use: reward"),
        (["algorithm=grpoo"], "Did you mean 'grpo'"),
        (
            ["algorithm={use: grpo, correction: token_tis}", "update.old_logprobs=sampler"],
            "the ratio of the loss corrects for the sampler already",
        ),
        (
            ["algorithm={use: remax, policy_loss: reinforce}", "update.old_logprobs=sampler"],
            "ReMax compares with no old policy: leave it out",
        ),
        (["rollout.max_staleness=1"], "max_staleness is 1, and nothing corrects for the older policy"),
    ],
)
def test_a_setting_that_the_algorithm_does_not_use_is_refused(overrides, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        checked(tmp_path, *overrides)
