"""Group trajectories into episodes, with the answer's speaker and the reward of each speaker."""

from dataclasses import replace

import pytest

from agentfly_core.records.speakers import (
    answering,
    any_spread,
    by_episode,
    earned_by_speaker,
    episode_numbers,
    own_reward,
)
from agentfly_core.records.trajectory import Scored, Unscored
from agentfly_core.testing.trajectories import trajectory, turn

SAID = turn([1], {2: -0.5})


def speaker(agent, episode="e0", **more):
    name = f"{episode}-{agent}"
    return trajectory(SAID, name=name, agent=agent, episode=episode, **more)


TEAM = [speaker("planner"), speaker("searcher"), speaker("searcher/2")]


def scores(**rewards):
    return {
        one.id: Scored(one.id, {}, (), reward)
        for one, reward in zip(TEAM, rewards.values(), strict=True)
    }


def test_the_trajectories_of_an_episode_may_lie_apart():
    played = [speaker("planner", "a"), speaker("planner", "b"), speaker("searcher", "a")]
    assert episode_numbers(played) == [0, 1, 0]
    assert [[t.id for t in one] for one in by_episode(played)] == [
        ["a-planner", "a-searcher"],
        ["b-planner"],
    ]


def test_one_trajectory_that_is_given_twice_is_two_episodes():
    assert episode_numbers([TEAM[0], TEAM[0], TEAM[1]]) == [0, 1, 0]


def test_the_answerer_is_the_speaker_of_the_answer_or_a_default():
    assert answering(TEAM, "planner").agent == "planner"
    episode = [*TEAM[:2], speaker("searcher/2", answered="99")]
    assert answering(episode, "planner").agent == "searcher/2"
    silent, late = (replace(TEAM[0], turns=()), replace(TEAM[1], turns=(replace(SAID, call=3),)))
    assert answering([silent, late, TEAM[2]], "another") is TEAM[2]


def test_instances_of_a_role_earn_their_mean():
    assert earned_by_speaker(TEAM, scores(planner=1.0, first=0.5, second=0.0)) == {
        "planner": 1.0,
        "searcher": 0.25,
    }


def test_a_missing_score_is_the_whole_episodes():
    assert earned_by_speaker(TEAM, scores(planner=1.0, first=0.5, second=Unscored("slow"))) is None


def test_untrained_speakers_earn_only_if_all_are_untrained():
    frozen = speaker("searcher", policy="run:demo@7")
    scores = {one.id: Scored(one.id, {}, (), 1.0) for one in (TEAM[0], frozen)}
    assert earned_by_speaker([TEAM[0], frozen], scores) == {"planner": 1.0}
    assert earned_by_speaker([frozen], scores) == {"searcher": 1.0}


@pytest.mark.parametrize(
    ("episodes", "spread"),
    [
        ([{"planner": 1.0, "searcher": 0.0}, {"planner": 1.0, "searcher": 0.0}], False),
        ([{"planner": 1.0, "searcher": 0.0}, {"planner": 1.0, "searcher": 1.0}], True),
        ([{"planner": 1.0}, {"planner": 1.0, "searcher": 0.0}], False),
        ([{"planner": 0.3}, {"planner": 0.1 + 0.2}], False),
        ([{"planner": 1.0}, {"planner": 0.99999994}], False),
        ([{"planner": 1e12}, {"planner": 1e12 + 0.001}], False),
        ([{"planner": 0.3}, {"planner": 0.30001}], True),
        ([], False),
    ],
)
def test_different_rewards_of_one_speaker_are_spread(episodes, spread):
    assert any_spread(episodes) is spread


def test_a_reward_that_a_speaker_was_given_apart_is_its_own():
    scored = Scored("t0", {"exact": 1.0, "exact/speaker/planner": 0.5}, (), 0.5)
    assert own_reward(scored, "exact", "planner") == 0.5
    assert own_reward(scored, "exact", "searcher") == 1.0
