"""Rewards of trajectories, their tokens, and the groups for comparison."""

from dataclasses import replace

import pytest

from agentfly_core.records.trajectory import Ending, Message, Sampled, Scored, Unscored
from agentfly_core.rl.batch import pack
from agentfly_core.rl.outcomes import outcomes
from agentfly_core.testing.trajectories import trajectory as played
from agentfly_core.testing.trajectories import turn
from tests.support.generated_trajectories import earned

ASKS = turn([1], {3: -1.0, 4: -1.0})
ANSWERS = turn([5, 6], {7: -1.0}, {8: -1.0})
SILENT = turn([5])


def test_a_reward_is_at_the_last_sampled_token_of_its_turn():
    outcomes = earned([played(ASKS, ANSWERS)], [1.5], by_turn=[(0.5, 1.0)])
    #                                        asks    answers
    assert outcomes.token_rewards.tolist() == [[0, 0.5, 0, 1.0]]


def test_rewards_without_a_turn_are_at_the_last_sampled_token():
    outcomes = earned([played(ASKS, ANSWERS), played(ASKS)], [1.0, 2.0], by_turn=[(0.25, 0.0), ()])
    assert outcomes.token_rewards.tolist() == [[0, 0.25, 0, 0.75], [0, 2.0, 0, 0]]
    assert outcomes.rewards.tolist() == [1.0, 2.0]


def test_a_reward_moves_back_to_the_last_sampled_turn():
    outcomes = earned([played(ASKS, SILENT)], [1.0])
    assert outcomes.token_rewards.tolist() == [[0, 1.0]]


def test_a_reward_on_a_turn_without_a_sampled_token_is_an_error():
    with pytest.raises(ValueError, match=r"Turn 1 of trajectory t0 .*reward"):
        earned([played(ASKS, SILENT)], [1.0], by_turn=[(0.0, 1.0)])


def test_a_greedy_reply_credits_the_trained_reply_before_it():
    greedy = replace(ANSWERS, temperature=0.0)
    outcomes = earned([played(ASKS, greedy, ASKS)], [3.0], by_turn=[(0.5, 0.25, 1.0)])
    #                                        asks     asks; the rest of the reward, 1.25, is last
    assert outcomes.token_rewards.tolist() == [[0, 0.75, 0, 2.25]]
    first = earned([played(greedy, ASKS, greedy)], [1.0], by_turn=[(0.5, 0.0, 0.25)])
    assert first.token_rewards.tolist() == [[0, 1.0]]


def test_a_trajectory_without_tokens_still_has_a_reward():
    outcomes = earned([played(SILENT), played(ASKS)], [1.0, 0.0])
    assert (outcomes.rewards.tolist(), outcomes.token_rewards.tolist()) == (
        [1.0, 0.0],
        [[0, 0], [0, 0]],
    )


def test_a_reply_in_pieces_and_in_a_fresh_context_is_one_turn():
    outcomes = earned([played(ANSWERS, replace(ANSWERS, context=1))], [3.0], by_turn=[(1.0, 2.0)])
    assert outcomes.token_rewards.tolist() == [[0, 1.0, 0, 2.0]]


def test_groups_need_not_be_contiguous():
    outcomes = earned([played(ASKS, group=name) for name in "abab"], [0.0] * 4)
    assert outcomes.groups == ((0, 2), (1, 3))


def test_an_unscored_trajectory_is_no_zero():
    trajectory = played(ASKS)
    with pytest.raises(ValueError, match=r"t0 .*exact: TimeoutError"):
        outcomes(
            [trajectory],
            [Scored("t0", {}, (), Unscored("exact: TimeoutError"))],
            {},
            {},
            pack([trajectory]),
        )


def test_episodes_stopped_at_a_limit_are_cut():
    limited = replace(ASKS, sampled=(Sampled((3,), (-1.0,), 0, "length"),))
    endings = (Ending.MAX_TURNS, Ending.MAX_MODEL_LEN, Ending.TERMINAL)
    episodes = [
        played(ASKS),
        played(limited),
        played(limited, ASKS),
        *(replace(played(ASKS), ending=e) for e in endings),
    ]
    assert pack(episodes).cut.tolist() == [False, True, False, True, True, False]


def test_a_state_is_named_by_the_environment_or_the_prompt():
    sum_prompt, other_prompt = (Message("user", "41+58?"),), (Message("user", "17+4?"),)
    named = replace(ASKS, state="empty cart", read=sum_prompt)
    outcomes = earned(
        [
            played(named, replace(ASKS, read=sum_prompt)),
            played(replace(ASKS, read=sum_prompt), replace(ASKS, read=other_prompt)),
        ],
        [0, 0],
    )
    (first, second), (third, fourth) = outcomes.states
    assert (first, second == third, second == fourth) == ("empty cart", True, False)
