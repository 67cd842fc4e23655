"""PPO with a critic, on real DeepSpeed workers: a head on the policy, or a model of its own."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from agentfly_core.records.trajectory import Unscored
from agentfly_core.testing.trajectories import trajectory, turn
from agentfly_core.training.client import DeepSpeedLearner
from tests.support.generated_trajectories import crowd
from tests.support.learner_jobs import PPO, after, digests, going_on, saved, settings, stored

BOTH = ("head", "model")


@pytest.fixture(params=["head", pytest.param("model", marks=pytest.mark.long)])
def job(request, tmp_path, nano):
    return replace(stored(tmp_path, nano, crowd(6, 4)), algorithm=PPO | {"critic": request.param})


@pytest.mark.parametrize("job", BOTH, indirect=True)
def test_values_learn_the_return_of_each_problem(learner, job, nano, tmp_path):
    won, lost = turn([1, 2, 3], {11: -5.0}), turn([4, 5, 6], {11: -5.0})
    episodes = [
        trajectory(won if i % 2 else lost, name=f"t{i}", group=f"g{i % 2}") for i in range(8)
    ]
    update = stored(tmp_path, nano, episodes, reward=lambda i: i % 2)
    algorithm = job.algorithm.model_dump() | {
        "value_clip": 2.0,
        "gae": {"use": "token", "lam": 1.0},
    }
    learning = replace(update, algorithm=algorithm, update=settings(learning_rate=1e-4, epochs=4))
    first = learner.update(replace(learning, update=settings(learning_rate=1e-9)))
    assert first["train/value_loss"] == pytest.approx(
        0.25, abs=0.01
    )  # half of 1 and 0 squared, with values of 0
    learner.update(learning)
    for step in range(1, 4):
        last = learner.update(after(learning, step))
    assert last["train/value_loss"] < 0.02


def test_a_critic_learns_without_differences_between_tokens(learner, job, nano, tmp_path):
    update = stored(tmp_path, nano, crowd(2, 2), reward=lambda i: 1.0)
    equal = replace(
        update,
        algorithm=job.algorithm.model_dump()
        | {"value_clip": 2.0, "gae": {"use": "token", "lam": 1.0}},
    )
    first = learner.update(replace(equal, update=settings(learning_rate=1e-4)))
    assert (first["train/optimizer_steps"], first["train/value_loss"]) == (1.0, pytest.approx(0.5))
    assert learner.update(after(equal, 1))["train/value_loss"] < 0.5


def test_a_run_with_a_lost_critic_ends_with_the_same_bytes(learner, job, tmp_path):
    first, second = going_on(learner, job, tmp_path)
    assert digests(second[1]) != digests(first[1])


def test_the_critic_is_in_the_learner_state_only(learner, job, nano, tmp_path):
    learner.update(job)
    policy, state = saved(learner, tmp_path / "saved")
    weights, moments = (
        load_file(policy / "model.safetensors"),
        load_file(state / "learner.safetensors"),
    )
    assert weights.keys() == load_file(nano / "model.safetensors").keys()
    assert {
        f"critic.head.weight/{part}" for part in ("weight", "exp_avg", "exp_avg_sq")
    } <= moments.keys()
    backbone = [name for name in moments if name.startswith("critic.backbone.")]
    assert bool(backbone) == (job.algorithm.settings["critic"] == "model")
    _, loading = AutoModelForCausalLM.from_pretrained(policy, output_loading_info=True)
    assert not any(loading.values()), loading


def test_the_critic_takes_larger_steps(learner, job, tmp_path):
    learner.update(
        replace(job, update=settings(max_grad_norm=1e9))
    )  # AdamW's first step is the learning rate
    _, state = saved(learner, tmp_path / "saved")
    head = load_file(state / "learner.safetensors")["critic.head.weight/weight"]
    assert head.abs().median().item() == pytest.approx(10 * 1e-3, rel=1e-2)


@pytest.mark.parametrize("job", BOTH, indirect=True)
def test_only_a_critic_head_changes_the_policy(learner, job, tmp_path):
    policies = []
    for weight in (0.1, 10.0):
        algorithm = job.algorithm.model_dump() | {"value_weight": weight}
        learner.update(
            replace(job, algorithm=algorithm, update=settings(max_grad_norm=1e9, epochs=3))
        )
        policies.append(saved(learner, tmp_path / str(weight))[0])
    one, other = (load_file(policy / "model.safetensors") for policy in policies)
    apart = any(not torch.equal(one[name], other[name]) for name in one)
    assert apart == (job.algorithm.settings["critic"] == "head")


@pytest.mark.long
def test_two_ranks_learn_the_same_as_one(workers, job):
    one, two = (DeepSpeedLearner(workers(ranks)).update(job) for ranks in (1, 2))
    for name in ("train/loss", "train/value_loss", "train/grad_norm", "train/kl"):
        assert two[name] == pytest.approx(one[name], rel=1e-5, abs=1e-7)


def test_an_update_without_any_score_changes_nothing(learner, job, nano, tmp_path):
    unscored = stored(tmp_path, nano, crowd(1, 2), reward=lambda i: Unscored("TimeoutError"))
    metrics = learner.update(replace(unscored, algorithm=job.algorithm))
    assert (metrics["train/optimizer_steps"], metrics["train/empty_steps"]) == (0, 1)
