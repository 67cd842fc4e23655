"""Training an adapter instead of a model's weights, on real DeepSpeed workers: it alone changes,
and is the policy.
"""

import json
from dataclasses import replace

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from agentfly_core.config.experiment import Adapter
from agentfly_core.training.client import DeepSpeedLearner
from agentfly_core.training.job import LearnerFailed
from agentfly_core.training.policy import load_policy
from tests.support.generated_trajectories import crowd
from tests.support.learner_jobs import GRPO, PPO, after, digests, going_on, saved, settings, stored

ADAPTER = {"rank": 4, "alpha": 8, "targets": "all-linear"}
LAYERS = ["down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"]


@pytest.fixture
def job(tmp_path, nano):
    return replace(
        stored(tmp_path, nano, crowd(6, 4)),
        adapter=ADAPTER,
        update=settings(epochs=2, mini_batches=2),
    )


def onwards(job, step, policy=None, state="not read"):
    """The next job after a step with an adapter on the first job's base policy."""
    return replace(after(job, step, policy, state), base=job.policy)


def weights(policy):
    return load_file(policy / "adapter_model.safetensors")


def test_peft_confirms_the_probe_of_an_adapter_policy(learner, job, nano, tmp_path):
    learner.update(job)
    policy, _ = saved(learner, tmp_path / "saved")
    assert not (policy / "model.safetensors").exists()
    settings = json.loads((policy / "adapter_config.json").read_text())
    assert (settings["r"], settings["lora_alpha"], settings["target_modules"]) == (4, 8, LAYERS)
    assert str(nano.parent) not in json.dumps(settings)
    assert len(weights(policy)) == 3 * 7 * 2
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(nano), policy)
    probe = json.loads((policy / "probe.json").read_text())
    with torch.no_grad():
        logits = model(torch.tensor([probe["tokens"]])).logits[0, :-1]
    expected = torch.log_softmax(logits, -1)[torch.arange(63), torch.tensor(probe["tokens"][1:])]
    assert probe["logprobs"] == pytest.approx(expected.tolist(), abs=1e-5)
    assert probe["logprobs"] != pytest.approx(
        json.loads((nano / "probe.json").read_text())["logprobs"], abs=1e-3
    )
    mine, its = (AutoTokenizer.from_pretrained(folder) for folder in (policy, nano))
    assert mine("What is 41+58?") == its("What is 41+58?")


@pytest.mark.parametrize("critic", ["none", "head", "model"])
def test_only_the_adapter_and_a_critic_are_trained(learner, job, critic, tmp_path):
    if critic != "none":
        job = replace(job, algorithm=PPO | {"critic": critic})
    learner.update(job)
    _, state = saved(learner, tmp_path / "saved")
    names = {
        name.removesuffix("/weight")
        for name in load_file(state / "learner.safetensors")
        if name.endswith("/weight")
    }
    assert len([name for name in names if name.startswith("model.")]) == 3 * 7 * 2
    assert all("lora_" in name or name.startswith("critic.head.") for name in names)
    assert len(names) == {"none": 42, "head": 42 + 2, "model": 42 + 2 + 42}[critic]


@pytest.mark.parametrize(
    ("ranks", "algorithm"),
    [
        pytest.param(1, GRPO, id="1 rank"),
        pytest.param(2, PPO | {"critic": "model"}, id="2 ranks", marks=pytest.mark.long),
    ],
)
def test_a_run_that_lost_its_learner_ends_with_the_same_bytes(
    ranks, algorithm, workers, job, tmp_path
):
    learner, job = DeepSpeedLearner(workers(ranks)), replace(job, algorithm=algorithm)
    first, second = going_on(learner, job, tmp_path, onwards)
    learner.update(job)
    assert [digests(folder) for folder in saved(learner, tmp_path / "anew")] == [
        digests(f) for f in first
    ]
    assert digests(second[0]) != digests(first[0])


@pytest.mark.long
def test_two_ranks_learn_the_same_as_one(workers, job, tmp_path):
    metrics, policies = {}, {}
    for ranks in (1, 2):
        learner = DeepSpeedLearner(workers(ranks))
        metrics[ranks] = learner.update(job)
        policies[ranks] = weights(saved(learner, tmp_path / str(ranks))[0])
    for name in ("train/loss", "train/grad_norm", "train/entropy", "train/tokens", "train/kl"):
        assert metrics[2][name] == pytest.approx(metrics[1][name], rel=1e-4, abs=1e-7)
    for name, weight in policies[1].items():
        assert (weight - policies[2][name]).abs().max() < 1e-5
        assert bool(weight.any()), "every layer's adapter has learned"


def test_a_new_adapter_depends_on_the_seed_and_changes_nothing(
    nano,
):
    one, other = (
        load_policy(str(nano), "float32", adapter=Adapter(), seed=seed) for seed in (1, 2)
    )
    begun = [dict(policy.model.named_parameters()) for policy in (one, other)]
    assert any(not torch.equal(weight, begun[1][name]) for name, weight in begun[0].items())
    tokens = torch.tensor([[1, 2, 3, 4]])
    plain = load_policy(str(nano), "float32")
    for policy in (one, other):
        assert torch.equal(policy.model(tokens).logits, plain.model(tokens).logits)


def test_an_adapter_is_held_back_by_its_reference(learner, job, nano, tmp_path):
    held = replace(
        job, algorithm=GRPO | {"kl": {"use": "loss", "weight": 0.1}}, reference=str(nano)
    )
    learner.update(held)
    policy, state = saved(learner, tmp_path / "saved")
    assert learner.update(onwards(held, 1))["train/kl_reference"] > 0
    still = settings(learning_rate=1e-9)
    at_start = replace(
        onwards(held, 1, policy, state),
        reference=str(policy),
        reference_base=str(nano),
        update=still,
    )
    assert learner.update(at_start)["train/kl_reference"] == pytest.approx(0, abs=1e-9)


@pytest.mark.long
def test_bfloat16_keeps_float32_weights_of_the_adapter(learner, job, tmp_path):
    learner.update(replace(job, dtype="bfloat16"))
    policy, state = saved(learner, tmp_path / "saved")
    assert {weight.dtype for weight in weights(policy).values()} == {torch.bfloat16}
    assert {weight.dtype for weight in load_file(state / "learner.safetensors").values()} == {
        torch.float32
    }


def test_a_missing_layer_is_refused_by_name(learner, job):
    with pytest.raises(LearnerFailed, match=r"'q_porj'.*'q_proj'"):
        learner.update(replace(job, adapter=ADAPTER | {"targets": ["v_proj", "q_porj"]}))
    with pytest.raises(LearnerFailed, match=r"linear layer 'lm_head'"):
        learner.update(replace(job, adapter=ADAPTER | {"targets": ["lm_head"]}))


def test_an_adapter_without_its_base_model_is_refused(learner, job, tmp_path):
    learner.update(job)
    policy, _ = saved(learner, tmp_path / "saved")
    with pytest.raises(LearnerFailed, match=r"policy .*config\.json is missing"):
        learner.update(replace(job, policy=str(policy)))
