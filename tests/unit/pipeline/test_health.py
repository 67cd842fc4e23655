"""Signs of a failing training."""

import pytest
from pydantic import ValidationError

from agentfly_core.config import loading
from agentfly_core.config.health_signs import SIGNS, Sign
from agentfly_core.pipeline.stages.step_metrics import log_step
from agentfly_core.pipeline.stop_conditions import (
    GateClosed,
    lasting,
    reward_fall,
    unmeasured,
    warnings,
)
from agentfly_core.runs.run import opened
from agentfly_core.store.artifact import ArtifactKey
from agentfly_core.store.stage_metrics import measuring
from tests.support.experiments import experiment

DULL = {"entropy": Sign(metric="train/entropy", below=0.01, steps=2)}


def steps(signs, *values):
    """The metrics of steps with these entropies, one after the other."""
    metrics = {}
    for value in values:
        now = {"train/entropy": value}
        metrics = now | lasting(signs, now, metrics)
    return metrics


def test_a_sign_is_reported_after_its_steps():
    assert warnings(DULL, steps(DULL, 0.5, 0.004)) == []
    warning = "train/entropy is 0.004, below 0.01, for 2 steps in a row"
    assert warnings(DULL, steps(DULL, 0.5, 0.009, 0.004)) == [warning]


def test_a_lasting_sign_is_reported_again_after_twice_the_steps():
    dull = [0.004] * 9
    warnings_by_step = [warnings(DULL, steps(DULL, *dull[:count])) for count in range(1, 10)]
    assert [count for count, lines in enumerate(warnings_by_step, 1) if lines] == [2, 4, 8]


def test_a_good_step_resets_the_count():
    assert steps(DULL, 0.001, 0.001, 0.5, 0.001)["health/entropy"] == 1.0


def test_a_sign_with_stop_ends_the_run():
    fatal = {"entropy": DULL["entropy"].model_copy(update={"stop": True})}
    warnings(fatal, steps(fatal, 0.001))
    with pytest.raises(
        GateClosed, match=r"entropy is 0.001, below 0.01, for 2 steps .*\(health.entropy\)"
    ):
        warnings(fatal, steps(fatal, 0.001, 0.001))


def test_a_missing_measurement_is_not_a_sign():
    assert lasting(DULL, {}, {}) == {"health/entropy": 0.0}


def test_a_sign_of_an_unknown_metric_names_the_nearest_one():
    signs = {**DULL, "typo": Sign(metric="train/entrpy", below=0.01), "none": None}
    message = (
        "health.typo uses the metric 'train/entrpy', which was not measured. "
        "Did you mean 'train/entropy'?"
    )
    assert unmeasured(signs, {"train/entropy": 0.5, "train/loss": 0.1}) == [message]


def test_a_vetted_metric_of_another_algorithm_is_ignored():
    assert unmeasured(SIGNS, {"train/loss": 0.1}) == []


def logged(tmp_path, algorithm, updates, **settings):
    """Return metrics of steps with groups of equal rewards and these update metrics."""
    rollout = {"problems": 2, "group_size": 1}
    with opened(
        experiment(tmp_path, algorithm=algorithm, rollout=rollout, **settings), "demo"
    ) as run:
        for step, update in enumerate(updates, 1):
            scored = published(run.store, step, "scored", {"rollout/zero_spread_groups": 1.0})
            policy = published(run.store, step, "policy", {"train/skipped_steps": 0.0, **update})
            log_step(run, [], scored, policy, step)
        names = [run.layout.step(step).metrics for step in range(1, len(updates) + 1)]
        return [run.store.read_json(name)["metrics"] for name in names]


def published(store, step, name, measures):
    target = ArtifactKey(f"runs/demo/steps/{step:06d}/{name}", "update", str(step), {})
    with store.publish(target) as folder, measuring(folder) as metrics:
        metrics |= measures
    return store.artifact(target.uri)


@pytest.mark.parametrize(
    ("algorithm", "shown"), [("ppo", 0.0), ("reinforce_pp", 0.0), ("grpo", 3.0)]
)
def test_equal_rewards_are_a_sign_only_for_group_algorithms(algorithm, shown, tmp_path, caplog):
    last = logged(tmp_path, algorithm, [{"train/optimizer_steps": 1.0}] * 3)[-1]
    assert last["health/zero_spread"] == shown
    assert ("zero_spread_groups" in caplog.text) == (shown > 0)


def test_a_mistyped_sign_is_reported_once(tmp_path, caplog):
    learned = {"train/optimizer_steps": 1.0, "train/entropy": 0.5}
    logged(
        tmp_path,
        "ppo",
        [learned, learned],
        health={"typo": Sign(metric="train/entrpy", below=0.01)},
    )
    messages = [
        record.getMessage() for record in caplog.records if "not measured" in record.getMessage()
    ]
    hint = "Did you mean 'train/entropy'?"
    assert messages == [
        f"Step 1: health.typo uses the metric 'train/entrpy', which was not measured. {hint}"
    ]


def test_a_step_without_learning_has_a_remedy(tmp_path, caplog):
    logged(tmp_path, "rft", [{"train/optimizer_steps": 0.0}])
    (message,) = (record.getMessage() for record in caplog.records)
    assert message.startswith(
        "Step 1 trained nothing: no episode had an advantage. Read the episodes of this step "
        "with `agentfly show demo@1`"
    )


REWARD = "rollout/reward"


def test_a_fall_of_the_reward_names_the_learning_rate_and_a_fork(tmp_path, caplog):
    update = {"learning_rate": 0.01}
    learned = {"train/optimizer_steps": 1.0, "train/kl": 0.01}
    rewards = [{**learned, REWARD: reward} for reward in (0.60, 0.64, 0.65, 0.10)]
    metrics = logged(tmp_path, "ppo", rewards, update=update)
    assert metrics[3]["rollout/reward_fall"] == pytest.approx(0.55)
    (warning,) = (record.getMessage() for record in caplog.records)
    assert warning == (
        "Step 4: rollout/reward_fall is 0.55, above 0.3; update.learning_rate is 0.01, "
        "probably too high; lower it: `agentfly fork demo@2 update.learning_rate=0.001 "
        "fork.optimizer_state=fresh`."
    )


def test_a_high_kl_names_the_learning_rate_and_the_start(tmp_path, caplog):
    logged(tmp_path, "ppo", [{"train/optimizer_steps": 8.0, "train/kl": 4.39}])
    (warning,) = (record.getMessage() for record in caplog.records)
    assert warning == (
        "Step 1: train/kl is 4.39, above 0.5; update.learning_rate is 1e-06, probably too high; "
        "lower it: `agentfly train tiny update.learning_rate=1e-07`."
    )


def test_a_too_high_rate_is_not_blamed_on_the_problems(tmp_path, caplog):
    ruined = [
        {"train/optimizer_steps": 8.0, "train/kl": 4.39, REWARD: 0.644},
        {"train/optimizer_steps": 0.0, REWARD: 0.0},
        {"train/optimizer_steps": 0.0, REWARD: 0.0},
    ]
    logged(tmp_path, "rft", ruined, update={"learning_rate": 0.01})
    nothing = [r.getMessage() for r in caplog.records if "trained nothing" in r.getMessage()]
    assert len(nothing) == 2
    for warning in nothing:
        assert "problems" not in warning
        assert "`agentfly train tiny update.learning_rate=0.001`" in warning


def test_the_advised_command_keeps_the_other_overrides(tmp_path, caplog, monkeypatch):
    overrides = ["steps=3", "update.learning_rate=1e-06"]
    monkeypatch.setattr(
        "agentfly_core.pipeline.stages.step_metrics.experiment_of",
        lambda record: ("tiny", overrides),
    )
    logged(tmp_path, "ppo", [{"train/optimizer_steps": 8.0, "train/kl": 4.39}])
    assert "`agentfly train tiny steps=3 update.learning_rate=1e-07`" in caplog.text


@pytest.mark.parametrize(
    ("before", "now", "fall"), [(0.5, 0.4, 0.1), (0.4, 0.5, 0.0), (20.0, 15.0, 0.25)]
)
def test_the_fall_of_a_large_reward_is_relative(before, now, fall):
    metrics = reward_fall({REWARD: now}, {REWARD: before})
    assert metrics == {f"{REWARD}_fall": pytest.approx(fall)}


def test_a_reward_that_is_missing_has_not_fallen():
    assert reward_fall({}, {REWARD: 0.5}) == {}
    assert reward_fall({REWARD: 0.5}, {}) == {f"{REWARD}_fall": 0.0}


def test_a_healthy_step_shows_none_of_the_vetted_signs():
    healthy = {
        "rollout/unscored": 0.0,
        "train/entropy": 0.7,
        "mismatch/k3": 1e-6,
        "train/grad_norm_max": 0.3,
    }
    assert set(lasting(SIGNS, healthy | {"train/skipped_steps": 0.0}, {}).values()) == {0.0}


def test_rewritten_histories_are_reported_above_5_percent_of_turns():
    metrics = {"rollout/history_rewrites": 0.05}
    assert warnings(SIGNS, metrics | lasting(SIGNS, metrics, {})) == []
    metrics = {"rollout/history_rewrites": 0.06}
    expected = ["rollout/history_rewrites is 0.06, above 0.05"]
    assert warnings(SIGNS, metrics | lasting(SIGNS, metrics, {})) == expected


def test_a_sign_in_one_optimizer_step_is_reported():
    metrics = {"train/grad_norm": 250.0, "train/grad_norm_max": 2000.0, "train/skipped_steps": 1.0}
    expected = ["train/grad_norm_max is 2e+03, above 1000", "train/skipped_steps is 1, above 0"]
    assert warnings(SIGNS, metrics | lasting(SIGNS, metrics, {})) == expected


def test_a_sign_has_one_bound():
    with pytest.raises(ValidationError, match="exactly one of `above` and `below`"):
        Sign(metric="train/entropy")


def test_an_experiment_changes_or_removes_a_sign():
    settings = loading.read(
        "quickstart", ["health.entropy.stop=true", "health.grad_norm=null"]
    ).settings
    assert settings.health["entropy"] == SIGNS["entropy"].model_copy(update={"stop": True})
    assert settings.health["grad_norm"] is None
    assert "health/grad_norm" not in lasting(settings.health, {}, {})


def test_bounds_may_change_when_a_run_is_continued():
    before, after = (
        loading.read("quickstart", given).settings for given in ([], ["health.entropy.below=0.1"])
    )
    changes = loading.differences(before.model_dump(mode="json"), after.model_dump(mode="json"))
    assert [(change.key, change.resumable) for change in changes] == [
        ("health.entropy.below", True)
    ]
