"""Effects of updates on a policy, and their metrics."""

from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForCausalLM

from agentfly_core.testing.trajectories import trajectory as played
from agentfly_core.testing.trajectories import turn
from tests.support.generated_trajectories import crowd
from tests.support.learner_jobs import (
    GRPO,
    SFT,
    after,
    digests,
    distance,
    saved,
    settings,
    stored,
)


def test_rewarded_tokens_become_likely(learner, nano, tmp_path):
    liked, other = {11: -5.0}, {22: -5.0}
    episodes = [played(turn([1, 2, 3], liked if i % 2 else other), name=f"t{i}") for i in range(8)]
    job = replace(
        stored(tmp_path, nano, episodes, reward=lambda i: i % 2),
        update=settings(learning_rate=1e-2),
    )
    before = surprise(nano, [1, 2, 3], 11)
    learner.update(job)
    for step in range(1, 5):
        learner.update(after(job, step))
    policy, _ = saved(learner, tmp_path / "saved")
    assert before > 4.0
    assert surprise(policy, [1, 2, 3], 11) < 2.0
    assert surprise(policy, [1, 2, 3], 22) > before


@torch.no_grad()
def surprise(policy, prompt, token):
    """-log p of a token after a prompt."""
    logits = AutoModelForCausalLM.from_pretrained(policy)(torch.tensor([prompt])).logits[0, -1]
    return -torch.log_softmax(logits, -1)[token].item()


def test_demonstrations_are_learned_in_batches_with_progress(learner, nano, tmp_path):
    episodes = [played(turn([1, i], {i + 10: 0.0}), name=f"t{i}") for i in range(8)]
    job = replace(stored(tmp_path, nano, episodes), scores=None, algorithm=SFT, batch=3)
    progress = []
    metrics = learner.update(
        replace(job, update=settings(learning_rate=1e-2, epochs=20)),
        lambda *steps: progress.append(steps),
    )
    assert progress == [(done, 60) for done in range(1, 61)]
    assert (metrics["train/optimizer_steps"], metrics["train/rows"]) == (60, 8)
    policy, _ = saved(learner, tmp_path / "saved")
    assert surprise(nano, [1, 5], 15) > 4.0
    assert surprise(policy, [1, 5], 15) < 2.0


def test_further_optimizer_steps_use_the_old_policy(learner, job):
    one = learner.update(replace(job, update=settings()))
    assert (one["train/kl"], one["train/clip_fraction"], one["train/optimizer_steps"]) == (0, 0, 1)
    more = learner.update(replace(job, update=settings(epochs=2, mini_batches=3)))
    assert more["train/kl"] > 0
    assert more["train/optimizer_steps"] == 6
    assert one["train/grad_norm_max"] == one["train/grad_norm"]
    assert more["train/grad_norm_max"] > more["train/grad_norm"]


def test_the_mismatch_is_that_of_the_policy_before_any_step(learner, nano, tmp_path):
    exact = [measured(nano, trajectory) for trajectory in crowd(6, 4)]
    for update in (settings(), settings(mini_batches=3), settings(old_logprobs="sampler")):
        metrics = learner.update(replace(stored(tmp_path, nano, exact), update=update))
        assert metrics["mismatch/max_abs_weight_error"] < 1e-4
        assert metrics["mismatch/ess"] == pytest.approx(1.0)
        assert metrics["mismatch/masked_share"] == 0.0
    made_up = stored(tmp_path, nano, crowd(6, 4))
    assert learner.update(made_up)["mismatch/max_abs_weight_error"] > 0.1
    for algorithm in (
        GRPO | {"policy_loss": {"use": "reinforce"}},
        {"use": "agentfly_core.algorithms.rft:RFT"},
    ):
        assert (
            learner.update(replace(made_up, algorithm=algorithm))["mismatch/max_abs_weight_error"]
            > 0.1
        )


def test_sampler_old_reference_and_new_share_the_temperature(learner, nano, tmp_path):
    cool = [measured(nano, trajectory, 0.7) for trajectory in crowd(6, 4)]
    penalised = GRPO | {"kl": {"use": "loss", "weight": 0.1}}
    job = replace(
        stored(tmp_path, nano, cool), temperature=0.7, algorithm=penalised, reference=str(nano)
    )
    one = learner.update(replace(job, update=settings()))
    assert one["mismatch/max_abs_weight_error"] < 1e-4
    assert (one["train/kl"], one["train/kl_reference"]) == (0, pytest.approx(0, abs=1e-9))
    two = learner.update(replace(job, update=settings(learning_rate=1e-9, epochs=2)))
    assert max(two["train/kl"], two["train/kl_reference"], two["mismatch/k3"]) < 1e-9


def test_replies_of_one_episode_may_have_their_own_temperatures(learner, nano, tmp_path):
    def warmer(trajectory):
        first, *others = (measured(nano, trajectory, t) for t in (0.7, 1.3))
        turns = [replace(first.turns[0], temperature=0.7), *others[0].turns[1:]]
        return replace(first, turns=tuple(turns))

    episodes = [warmer(one) for one in crowd(6, 4)]
    assert {len(one.turns) for one in episodes} == {1, 2}
    job = replace(stored(tmp_path, nano, episodes), temperature=1.3, reference=str(nano))
    job = replace(job, algorithm=GRPO | {"kl": {"use": "loss", "weight": 0.1}})
    one = learner.update(replace(job, update=settings()))
    assert one["mismatch/max_abs_weight_error"] < 1e-4
    assert (one["train/kl"], one["train/kl_reference"]) == (0, pytest.approx(0, abs=1e-9))
    several = learner.update(replace(job, update=settings(learning_rate=1e-9, epochs=2)))
    assert max(several["train/kl"], several["train/kl_reference"]) < 1e-9
    wrong = learner.update(replace(job, temperature=1.0, update=settings()))
    assert wrong["mismatch/max_abs_weight_error"] > 0.1


def test_an_explicit_temperature_leaves_the_bytes_unchanged(learner, nano, tmp_path):
    def update(name, temperature):
        episodes = [
            replace(t, turns=tuple(replace(one, temperature=temperature) for one in t.turns))
            for t in crowd(6, 4)
        ]
        (tmp_path / name).mkdir()
        learner.update(replace(stored(tmp_path / name, nano, episodes), temperature=0.7))
        return digests(saved(learner, tmp_path / name)[0])

    assert update("said", 0.7) == update("not said", None)
    assert update("other", 0.9) != update("again", None)


@torch.no_grad()
def measured(policy, trajectory, temperature=1.0):
    """The trajectory with the log-probabilities that transformers itself finds."""
    model, read, turns = AutoModelForCausalLM.from_pretrained(policy), [], []
    for played_turn in trajectory.turns:
        reply = [token for span in played_turn.sampled for token in span.tokens]
        read += played_turn.given.tokens
        logits = model(torch.tensor([[*read, *reply]])).logits[0, len(read) - 1 : -1]
        logprobs = torch.log_softmax(logits / temperature, -1)[
            torch.arange(len(reply)), torch.tensor(reply)
        ]
        turns.append(
            turn(played_turn.given.tokens, dict(zip(reply, logprobs.tolist(), strict=True)))
        )
        read += reply
    return replace(trajectory, turns=tuple(turns))


def test_a_reference_policy_holds_the_update_back(learner, job, nano, tmp_path):
    free = learner.update(replace(job, update=settings(epochs=6)))
    assert "train/kl_reference" not in free
    far, _ = saved(learner, tmp_path / "far")
    penalty = GRPO | {"kl": {"use": "loss", "weight": 10.0}}
    held = replace(job, reference=str(nano), algorithm=penalty, update=settings(epochs=6))
    assert learner.update(held)["train/kl_reference"] > 0
    near, _ = saved(learner, tmp_path / "near")
    assert distance(near, nano) < 0.9 * distance(far, nano)
