"""Rewards of the episodes of several tasks, and figures of each task."""

from pathlib import Path

from agentfly_core.pipeline.playing import of_step
from agentfly_core.pipeline.scoring import score_episodes
from agentfly_core.records.parquet import EPISODES, SCORES, read_scores, write_trajectories
from agentfly_core.records.timing import write_timings
from agentfly_core.records.trajectory import Problem, Score, of_task
from agentfly_core.testing.trajectories import trajectory, turn
from tests.support.experiments import experiment_of
from tests.support.mixtures import settings_with

SUM = of_task(Problem("add-41-58", "What is 41+58?", {"answer": "99"}), "sums")
BUY = of_task(Problem("buy-1", "Buy 2 red cups.", {"order": {}}), "shop")
SAID = turn([1], {3: -1.0}, reply="99")


def test_an_episode_has_its_tasks_rewards_and_the_goal(tmp_path: Path) -> None:
    bought = {"bought": Score(0.0)}
    played = [
        trajectory(SAID, name="right", problem=SUM, group="g0"),
        trajectory(SAID, name="bad", problem=BUY, group="g1", observed=bought),
    ]
    write_trajectories(tmp_path / EPISODES, played)
    write_timings(tmp_path, [])
    metrics = score_episodes(experiment_of(settings_with()), [tmp_path], [], 1, tmp_path)
    scores = {scored.trajectory_id: scored for scored in read_scores(tmp_path / SCORES)}
    assert scores["right"].rewards == {
        **{"exact": 1.0, "goal": 1.0},
        **{"tool_format": 0.0, "tool_format/answered": 0.0},
    }
    assert scores["right"].reward == 1.0 + 0.5 * 0.0
    assert (scores["bad"].rewards, scores["bad"].reward) == ({"bought": 0.0, "goal": 0.0}, 0.0)
    assert metrics["rollout/success"] == 1 / 2
    assert metrics["task/sums/rollout/success"] == 1.0
    assert metrics["task/shop/rollout/success"] == 0.0
    assert metrics["task/sums/reward_extra/exact/mean"] == 1.0
    assert "task/shop/reward_extra/exact/mean" not in metrics
    assert "task/shop/rollout/tool_calls/calculator" not in metrics


def test_each_group_of_a_step_has_one_task() -> None:
    specs = of_step(
        settings_with().rollout, settings_with().seeds_of(1), [SUM, BUY], 1, greedy=True
    )
    assert [(one.problem.id, one.chain, one.role) for one in specs] == [
        ("shop/buy-1", 0, "train"),
        ("shop/buy-1", 1, "train"),
        ("sums/add-41-58", 0, "train"),
        ("sums/add-41-58", 1, "train"),
        ("shop/buy-1", 2, "baseline"),
        ("sums/add-41-58", 2, "baseline"),
    ]
