"""The training data of an update."""

from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest
import torch

from agentfly_core.config.experiment import Update
from agentfly_core.config.parts import AlgorithmPart
from agentfly_core.records import ledger
from agentfly_core.records.parquet import write_scores, write_trajectories
from agentfly_core.records.trajectory import Ending, Problem, Scored, Unscored
from agentfly_core.testing.learning import update_job
from agentfly_core.testing.trajectories import trajectory, turn
from agentfly_core.training.data import mini_batches, read_update_data
from tests.support.generated_trajectories import crowd

SFT = AlgorithmPart(use="agentfly_core.algorithms.sft:SFT")


@pytest.fixture
def job(tmp_path):
    return update_job(tmp_path, [], [], algorithm=SFT)


def stored(folder, rewards):
    """Three groups of two trajectories in the files of two shards, with these rewards by id."""
    trajectories = crowd(3, 2)
    write_trajectories(folder / "0.parquet", trajectories[:3])
    write_trajectories(folder / "1.parquet", trajectories[3:])
    files = (str(folder / "0.parquet"), str(folder / "1.parquet"))
    job = replace(update_job(folder, [], [], algorithm=SFT), rollouts=files)
    write_scores(
        Path(job.scores), [Scored(name, {}, (), reward) for name, reward in rewards.items()]
    )
    return job


def test_a_group_can_span_two_shards(tmp_path):
    data = read_update_data(
        stored(tmp_path, {f"t{g}-{i}": g + i / 2 for g in range(3) for i in range(2)})
    )
    assert data.outcomes.groups == ((0, 1), (2, 3), (4, 5))
    assert data.outcomes.rewards.tolist() == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]


def test_unscored_trajectories_are_skipped_and_counted(tmp_path):
    rewards = {f"t{g}-{i}": 1.0 for g in range(3) for i in range(2)} | {
        "t1-0": Unscored("exact: TimeoutError")
    }
    data = read_update_data(stored(tmp_path, rewards))
    assert (data.trajectories, data.unscored) == (5, 1)
    assert data.outcomes.groups == ((0, 1), (2,), (3, 4))


def test_groups_of_equal_rewards_are_skipped_on_request(tmp_path):
    rewards = {"t0-0": 1.0, "t0-1": 1.0, "t1-0": 0.0, "t1-1": 1.0, "t2-0": 0.0, "t2-1": 0.0}
    data = read_update_data(stored(tmp_path, rewards), drop_equal=True)
    assert (data.trajectories, data.unscored, data.outcomes.rewards.tolist()) == (2, 0, [0.0, 1.0])


def spoken(agent, episode, problem, policy=""):
    name = f"{problem}-{episode}-{agent}"
    spoken_turn = turn([1], {3: -1.0})
    return trajectory(
        spoken_turn,
        name=name,
        agent=agent,
        episode=f"{problem}-{episode}",
        group=f"{problem}-{agent.partition('/')[0]}",
        problem=Problem(problem, "?"),
        chain=int(episode),
        policy=policy,
    )


def two_speakers(folder, rewards, **policies):
    """Episodes by the name of their trajectories, `problem-episode-agent`, with these rewards."""
    parts = [name.split("-") for name in rewards]
    played = [spoken(agent, e, p, policies.get(agent, "")) for p, e, agent in parts]
    return update_job(folder, played, list(rewards.values()), algorithm=SFT)


def test_a_problem_with_equal_rewards_per_speaker_is_skipped(tmp_path):
    rewards = {
        "p-0-planner": 1.0, "p-0-searcher": 0.0,
        "p-1-planner": 1.0, "p-1-searcher": 1.0, "p-1-searcher/2": 1.0,
        "q-0-planner": 1.0, "q-0-searcher": 0.0,
        "q-1-planner": 1.0, "q-1-searcher": 0.0, "q-1-searcher/2": 0.0,
    }  # fmt: skip
    data = read_update_data(two_speakers(tmp_path, rewards), drop_equal=True)
    #                                         planners  searchers
    assert data.outcomes.rewards.tolist() == [1.0, 0.0, 1.0, 1.0, 1.0]
    assert data.outcomes.groups == ((0, 2), (1, 3, 4))
    assert data.outcomes.episodes.tolist() == [0, 0, 1, 1, 1]


def test_only_trained_trajectories_count_to_fill_a_step(tmp_path):
    """Of three problems one was solved unevenly, by each speaker; all had two contexts each."""
    earned = {"p": [(1.0, 0.0), (0.0, 1.0)], "q": [(1.0, 0.0)] * 2, "r": [(0.0, 0.0)] * 2}
    rewards = {
        f"{problem}-{chain}-{agent}": reward
        for problem, episodes in earned.items()
        for chain, pair in enumerate(episodes)
        for agent, reward in zip(("planner", "searcher"), pair, strict=True)
    }
    played = [spoken(agent, e, p) for p, e, agent in (name.split("-") for name in rewards)]
    twice = [replace(one, turns=(*one.turns, turn([1], {3: -1.0}, context=1))) for one in played]
    scores = [Scored(name, {}, (), reward) for name, reward in rewards.items()]
    ledger.write(tmp_path, ledger.ledger(1, twice, scores))
    job = update_job(tmp_path, twice, list(rewards.values()), algorithm=SFT)
    data = read_update_data(job, drop_equal=True)
    assert ledger.used(tmp_path) == {"single": len({"p"})}
    assert (data.trajectories, len(data.batch.tokens)) == (4, 8)


def test_a_speaker_with_its_own_policy_is_not_trained(tmp_path):
    rewards = {"p-0-planner": 1.0, "p-0-critic": 0.0, "p-1-planner": 0.0, "p-1-critic": 1.0}
    data = read_update_data(two_speakers(tmp_path, rewards, critic="run:demo@7"))
    assert (data.trajectories, data.unscored, len(data.batch.tokens)) == (2, 0, 2)
    assert data.outcomes.groups == ((0, 1),)
    assert data.outcomes.rewards.tolist() == [1.0, 0.0]


def test_rewards_of_a_speaker_with_its_own_policy_are_ignored(tmp_path):
    rewards = {"p-0-planner": 1.0, "p-0-critic": 0.0, "p-1-planner": 1.0, "p-1-critic": 1.0}
    data = read_update_data(two_speakers(tmp_path, rewards, critic="run:demo@7"), drop_equal=True)
    assert data.trajectories == 0


def test_a_greedy_episode_is_a_baseline_and_not_trained(tmp_path):
    job = stored(tmp_path, {f"t{g}-{i}": g + i / 2 for g in range(3) for i in range(2)})
    first, second, *others = crowd(3, 2)
    write_trajectories(
        tmp_path / "0.parquet", [first, replace(second, role="baseline", chain=1), others[0]]
    )
    data = read_update_data(job)
    assert (data.trajectories, data.outcomes.rewards.tolist()) == (5, [0.0, 1.0, 1.5, 2.0, 2.5])
    assert data.outcomes.baselines.nan_to_num(-1.0).tolist() == [0.5, -1.0, -1.0, -1.0, -1.0]


def test_a_trajectory_without_any_score_is_an_error(tmp_path):
    with pytest.raises(ValueError, match=r" 5 trajectories, .* t0-1"):
        read_update_data(stored(tmp_path, {"t0-0": 1.0}))


def test_the_temperature_of_a_reply_defaults_to_that_of_the_job(tmp_path):
    job = replace(stored(tmp_path, {f"t{g}-{i}": 0.0 for g in range(3) for i in range(2)}))
    cool = [replace(t, turns=(replace(t.turns[0], temperature=0.5),)) for t in crowd(3, 2)[:3]]
    write_trajectories(tmp_path / "0.parquet", cool)
    batch = read_update_data(replace(job, temperature=0.75)).batch
    of_first, of_last = (batch.temperature[row][batch.sampled[row]].unique() for row in (0, -1))
    assert (of_first.tolist(), of_last.tolist()) == ([0.5], [0.75])
    shown = read_update_data(replace(job, temperature=0.75, scores=None)).batch
    assert shown.temperature.unique().tolist() == [0.75]


def test_demonstrations_need_no_scores(tmp_path):
    data = read_update_data(replace(stored(tmp_path, {}), scores=None))
    assert (data.trajectories, data.unscored) == (6, 0)


def test_a_failed_demonstration_is_not_trained(tmp_path):
    job = stored(tmp_path, {})
    failed = [replace(t, ending=Ending.FAILED) for t in crowd(3, 2)[:3]]
    write_trajectories(tmp_path / "0.parquet", failed)
    assert read_update_data(replace(job, scores=None)).trajectories == 3


def dealt(job, trajectories, **update):
    job = replace(job, update=Update(**update))
    return [part.tolist() for part in mini_batches(job, torch.arange(trajectories))]


def test_every_epoch_has_all_trajectories_in_a_new_order(job):
    steps = dealt(job, 10, epochs=2, mini_batches=4)
    assert [len(part) for part in steps] == [3, 3, 2, 2] * 2
    first, second = sorted(chain(*steps[:4])), sorted(chain(*steps[4:]))
    assert first == second == list(range(10))
    assert steps[:4] != steps[4:]


def test_the_batch_size_limits_the_demonstrations_of_a_step(job):
    parts = dealt(replace(job, batch=4), 10, epochs=1, mini_batches=1)
    assert [len(part) for part in parts] == [4, 3, 3]


def test_the_order_depends_on_the_seed_alone(job):
    order = dealt(job, 10, epochs=1, mini_batches=2)
    other = replace(job, policy="elsewhere", end="two")
    assert order == dealt(other, 10, epochs=1, mini_batches=2)
    assert order != dealt(replace(job, seed=2), 10, epochs=1, mini_batches=2)


def test_a_mini_batch_has_at_least_one_trajectory(job):
    assert [len(part) for part in dealt(job, 2, epochs=1, mini_batches=8)] == [1, 1]
    assert dealt(job, 0, epochs=1, mini_batches=8) == []
