"""The DeepSpeed learner: real workers on one rank and, with the real launcher, on two."""

import json
import math
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, BloomConfig

from agentfly_core.records.trajectory import Unscored
from agentfly_core.system.service import ServiceLost
from agentfly_core.testing.trajectories import trajectory as played
from agentfly_core.testing.trajectories import turn
from agentfly_core.training.client import DeepSpeedLearner
from agentfly_core.training.job import LearnerFailed
from tests.support.generated_trajectories import crowd
from tests.support.learner_jobs import (
    GRPO,
    PPO,
    SFT,
    after,
    digests,
    distance,
    going_on,
    kill_worker,
    saved,
    settings,
    stored,
)


@pytest.fixture(
    params=[pytest.param(1, id="1 rank", marks=pytest.mark.long), pytest.param(2, id="2 ranks")]
)
def service(request, workers):
    return workers(request.param)


@pytest.mark.long
def test_a_run_that_lost_its_learner_ends_with_the_same_bytes(service, job, tmp_path):
    learner = DeepSpeedLearner(service)
    learner.update(job)
    for step in (1, 2):
        learner.update(after(job, step))
    half = saved(learner, tmp_path / "half")
    for step in (3, 4, 5):
        learner.update(after(job, step))
    straight = saved(learner, tmp_path / "straight")
    kill_worker(service)
    for step in (3, 4, 5):
        learner.update(after(job, step, *half))
    resumed = saved(learner, tmp_path / "resumed")
    assert [digests(folder) for folder in resumed] == [digests(folder) for folder in straight]
    assert digests(straight[0])["model.safetensors"] != digests(half[0])["model.safetensors"]


COMPARED = (
    "train/loss",
    "train/grad_norm",
    "train/entropy",
    "train/kl",
    "train/tokens",
    "mismatch/k3",
)


@pytest.mark.parametrize(
    "shared",
    [
        pytest.param(True, id="prefixes shared"),
        pytest.param(False, id="not shared", marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize(
    ("ranks", "token_budget"),
    [
        pytest.param(2, 96, id="2 ranks"),
        pytest.param(1, 4096, id="one micro-batch", marks=pytest.mark.long),
    ],
)
def test_ranks_and_micro_batches_do_not_change_learning(
    workers, job, tmp_path, ranks, token_budget, shared
):
    job, metrics, policies = (
        replace(job, update=settings(mini_batches=2, share_prefixes=shared)),
        [],
        [],
    )
    for service in (workers(1), workers(ranks, token_budget)):
        learner = DeepSpeedLearner(service)
        metrics.append(learner.update(job))
        policies.append(saved(learner, tmp_path / str(len(policies)))[0])
    for name in COMPARED:
        assert metrics[1][name] == pytest.approx(metrics[0][name], rel=1e-5, abs=1e-7)
    assert 0 < distance(*policies) < 0.01 * distance(policies[0], job.policy)


def test_shared_prefixes_do_not_change_learning(service, job, tmp_path):
    learner, metrics = DeepSpeedLearner(service), {}
    for shared in (True, False):
        metrics[shared] = learner.update(
            replace(job, update=settings(mini_batches=2, share_prefixes=shared))
        )
        saved(learner, tmp_path / str(shared))
    for name in COMPARED:
        assert metrics[True][name] == pytest.approx(metrics[False][name], rel=1e-5, abs=1e-7)
    policies = [tmp_path / str(shared) / "policy" for shared in (True, False)]
    assert 0 < distance(*policies) < 0.01 * distance(policies[0], job.policy)


def test_rows_without_an_advantage_skip_the_backward_pass(service, nano, tmp_path):
    learner, metrics = DeepSpeedLearner(service), {}
    job = stored(
        tmp_path, nano, crowd(6, 4), reward=lambda i: float(i % 4 == 0 and i < 12)
    )  # in 3 of 6 groups
    everything = replace(
        job, algorithm=GRPO | {"kl": {"use": "loss", "weight": 1e-12}}, reference=str(nano)
    )
    for name, one in (("some", job), ("all", everything)):
        metrics[name] = learner.update(replace(one, update=settings(mini_batches=2)))
        saved(learner, tmp_path / name)
    assert metrics["all"]["train/learned_share"] == 1.0
    assert metrics["all"]["train/not_finite_share"] == 0.0
    assert 0.3 < metrics["some"]["train/learned_share"] < 0.7
    for name in COMPARED:
        assert metrics["some"][name] == pytest.approx(metrics["all"][name], rel=1e-5, abs=1e-7)
    policies = [tmp_path / name / "policy" for name in metrics]
    assert distance(*policies) < 0.01 * distance(policies[0], nano)


def test_a_state_saved_by_two_ranks_is_continued_by_one(workers, job, tmp_path):
    two, one = (DeepSpeedLearner(workers(ranks)) for ranks in (2, 1))
    two.update(replace(job, end="only/two"))
    half = saved(two, tmp_path / "half")
    for name, learner in (("two", two), ("one", one)):
        learner.update(replace(after(job, 1, *half), start="only/two"))
        saved(learner, tmp_path / name)
    moved = distance(half[0], tmp_path / "two/policy")
    assert distance(tmp_path / "one/policy", tmp_path / "two/policy") < 0.01 * moved


def test_an_update_without_advantages_is_skipped(service, nano, tmp_path):
    learner = DeepSpeedLearner(service)
    metrics = learner.update(stored(tmp_path, nano, crowd(2, 4), reward=lambda i: 1.0))
    assert (metrics["train/optimizer_steps"], metrics["train/empty_steps"]) == (0, 2)
    assert metrics["mismatch/ess"] > 0
    policy, _ = saved(learner, tmp_path / "saved")
    assert distance(policy, nano) == 0


def test_an_update_without_scores_is_skipped(service, nano, tmp_path):
    learner = DeepSpeedLearner(service)
    metrics = learner.update(
        stored(tmp_path, nano, crowd(2, 4), reward=lambda i: Unscored("TimeoutError"))
    )
    assert (
        metrics["train/optimizer_steps"],
        metrics["train/empty_steps"],
        metrics["train/unscored"],
    ) == (0, 1, 8)
    policy, _ = saved(learner, tmp_path / "saved")
    assert distance(policy, nano) == 0


def test_a_non_finite_step_is_skipped_and_counted(service, nano, tmp_path):
    learner = DeepSpeedLearner(service)
    episodes = [*crowd(2, 4), played(turn([1], {2: float("nan")}), name="t9", group="g0")]
    job = replace(
        stored(tmp_path, nano, episodes), update=settings(mini_batches=2, old_logprobs="sampler")
    )
    metrics = learner.update(job)
    assert (metrics["train/optimizer_steps"], metrics["train/skipped_steps"]) == (1, 1)
    assert {"train/loss", "train/grad_norm"} <= metrics.keys(), "those of the step that was taken"
    assert metrics["train/entropy"] > 4, "that of the micro-batches with a finite loss"
    assert 0 < metrics["train/not_finite_share"] < 1
    assert all(math.isfinite(value) for value in metrics.values())
    policy, _ = saved(learner, tmp_path / "saved")
    assert all(
        weight.isfinite().all() for weight in load_file(policy / "model.safetensors").values()
    )


def test_three_skipped_steps_in_a_row_stop_across_updates(service, nano, tmp_path):
    learner = DeepSpeedLearner(service)
    spoilt = [played(turn([1], {2: float("nan")}), name=f"t{i}", group="g0") for i in range(8)]
    four_steps = settings(mini_batches=4, old_logprobs="sampler")
    job = replace(stored(tmp_path, nano, [*crowd(2, 4), *spoilt]), update=four_steps)
    metrics = learner.update(job)
    assert (metrics["train/skipped_steps"], metrics["train/skipped_in_a_row"]) == (3, 3)
    metrics = learner.update(
        replace(job, start="fresh:again", before={"train/skipped_in_a_row": 2.0})
    )
    assert (metrics["train/skipped_steps"], metrics["train/skipped_in_a_row"]) == (1, 3)


def test_a_held_out_loss_that_is_not_finite_is_left_out(learner, job):
    shown = replace(job, algorithm=SFT, scores=None, held_out=job.rollouts[0])
    small, huge = (
        learner.update(replace(shown, update=settings(learning_rate=rate, epochs=4)))
        for rate in (1e-9, 1e30)
    )
    assert small["train/held_out_loss"] == pytest.approx(small["train/loss"], rel=0.1)
    assert "train/held_out_loss" not in huge
    assert huge["train/skipped_in_a_row"] == 3


def test_transformers_confirms_the_probe_of_a_saved_policy(learner, job, nano, tmp_path):
    learner.update(job)
    policy, _ = saved(learner, tmp_path / "saved")
    kept = {path.name for path in nano.iterdir()}
    assert kept | {"probe.json"} == {path.name for path in policy.iterdir()} | {
        "generation_config.json"
    }
    probe = json.loads((policy / "probe.json").read_text())
    assert (len(probe["tokens"]), len(probe["logprobs"])) == (64, 63)
    with torch.no_grad():
        logits = AutoModelForCausalLM.from_pretrained(policy)(
            torch.tensor([probe["tokens"]])
        ).logits[0, :-1]
    expected = torch.log_softmax(logits, -1)[torch.arange(63), torch.tensor(probe["tokens"][1:])]
    assert probe["logprobs"] == pytest.approx(expected.tolist(), abs=1e-5)


@pytest.mark.long
def test_bfloat16_resumes_with_the_same_float32_weights(learner, job, tmp_path):
    half = replace(job, dtype="bfloat16", update=settings(learning_rate=1e-5))
    first, second = going_on(learner, half, tmp_path)
    assert {weight.dtype for weight in load_file(first[0] / "model.safetensors").values()} == {
        torch.bfloat16
    }
    weights = [load_file(state / "learner.safetensors") for _, state in (first, second)]
    name = "model.model.embed_tokens.weight/weight"
    assert 0 < (weights[0][name] - weights[1][name]).abs().max() < 1e-4, (
        "a change too small for bfloat16 is kept"
    )


def test_a_retried_update_starts_where_it_started_before(learner, job, tmp_path):
    learner.update(job)
    first = saved(learner, tmp_path / "first")
    learner.update(after(job, 1, *first))
    once = saved(learner, tmp_path / "once")
    learner.update(after(job, 1, *first))
    assert [digests(folder) for folder in saved(learner, tmp_path / "twice")] == [
        digests(folder) for folder in once
    ]


@pytest.mark.long
def test_a_missing_or_different_state_is_refused(learner, job, nano, tmp_path):
    learner.update(job)
    policy, state = saved(learner, tmp_path / "saved")
    continued = after(job, 1, policy, state)
    new = r"lacks the weights {}.* set fork\.optimizer_state=fresh"
    for wrong, complaint in (
        (after(job, 1, policy, tmp_path), "learner.json"),
        (after(job, 4, policy, state), "contains the learner state 'step/1', expected 'step/4'"),
        (after(job, 1, nano, state), "belongs to another policy"),
        (replace(continued, algorithm=PPO), new.format(r"critic\.head\.weight")),
        (replace(continued, adapter={"rank": 4}), new.format(r"model\..*lora_A")),
        (replace(after(job, 1, policy), learner=None), "the job has no saved state"),
        (replace(job, policy=str(tmp_path)), "contains no model"),
    ):
        learner.update(replace(job, end="elsewhere"))
        with pytest.raises(LearnerFailed, match=complaint):
            learner.update(wrong)
    assert learner.label() is None


def test_a_learner_failure_has_a_traceback_and_is_survived(service, job, tmp_path):
    learner = DeepSpeedLearner(service)
    with pytest.raises(
        LearnerFailed, match=r"Did you mean 'aggregation'(.|\n)*In the learner:\nTraceback"
    ):
        learner.update(replace(job, algorithm=GRPO | {"agregation": "token_mean"}))
    assert learner.update(job)["train/optimizer_steps"] == 2


def test_a_lost_learner_takes_the_next_update(learner, workers, job, tmp_path):
    learner.update(job)
    assert learner.label() == "step/1"
    with pytest.raises(ServiceLost, match="died during 'update'"):
        learner.update(
            replace(job, update=settings(epochs=1000)), lambda done, total: kill_worker(workers(1))
        )
    with pytest.raises(ServiceLost, match=r"state None .*'step/1'"):
        learner.save_policy(tmp_path)
    assert learner.update(job)["train/optimizer_steps"] == 2


def test_a_reference_that_ignores_the_prefix_mask_is_refused(learner, job, tmp_path):
    alibi = BloomConfig(vocab_size=128, hidden_size=32, n_layer=1, n_head=2)
    AutoModelForCausalLM.from_config(alibi).save_pretrained(tmp_path / "alibi")
    penalised = replace(
        job,
        reference=str(tmp_path / "alibi"),
        algorithm=GRPO | {"kl": {"use": "loss", "weight": 1.0}},
    )
    with pytest.raises(LearnerFailed, match=r"bloom .*no mask limits.*update\.share_prefixes"):
        learner.update(penalised)
    plain = replace(penalised, update=settings(share_prefixes=False))
    assert learner.update(plain)["train/kl_reference"] > 0
