"""Rewards that compare the episodes of a problem."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from agentfly_core.authoring.environment import Environment, ServiceFailure
from agentfly_core.authoring.reward import Reward, reward
from agentfly_core.authoring.scoring import score
from agentfly_core.authoring.tool import tool
from agentfly_core.records.trajectory import (
    Ending,
    Group,
    Problem,
    Score,
    Trajectory,
    Unscored,
)
from agentfly_core.testing.trajectories import trajectory, turn
from tests.support import process_parts


def said(group: str, chain: int, reply: str, **more: Any) -> Trajectory:
    return trajectory(
        turn([1], {2: 0.0}, reply=reply), name=f"{group}{chain}", group=group, chain=chain, **more
    )


SHORT, LONG, LONGEST = (
    said("a", 0, "99"),
    said("a", 1, "It is 99."),
    said("a", 2, "Well, it is 99."),
)
OTHER = said("b", 0, "Ninety-nine.")


@reward
def shortest(group: Group) -> list[float]:
    """1 for the shortest answers of the problem."""
    lengths = [len(one.answer or "") for one in group.trajectories]
    return [float(length == min(lengths)) for length in lengths]


@reward
def right(trajectory: Trajectory) -> float:
    return float("99" in str(trajectory.answer))


def giving(result: Any) -> Reward:
    def gives(group: Group) -> Any:
        if isinstance(result, Exception):
            raise result
        return result

    return reward(gives)


async def rewards_of(
    trajectories: Sequence[Trajectory], *rewards: Reward
) -> list[float | Unscored]:
    return [one.reward for one in await score(trajectories, dict.fromkeys(rewards, 1.0))]


async def test_interleaved_episodes_are_compared_by_problem() -> None:
    assert await rewards_of([LONG, OTHER, SHORT, LONGEST], shortest) == [0.0, 1.0, 1.0, 0.0]
    (scored, *_) = await score([SHORT, LONG], {shortest: 0.5, right: 2.0})
    assert (scored.rewards, scored.reward) == ({"shortest": 1.0, "right": 1.0}, 2.5)


async def test_a_group_is_in_the_order_of_its_chains_and_has_its_problem() -> None:
    seen: list[tuple[list[int], str]] = []

    @reward
    async def looking(problem: Problem, group: Group) -> list[int]:
        seen.append(([one.chain for one in group.trajectories], problem.id))
        return [one.chain for one in group.trajectories]

    assert await rewards_of([LONGEST, SHORT, OTHER, LONG], looking) == [2.0, 0.0, 0.0, 1.0]
    assert seen == [([0, 1, 2], "problem-a"), ([0], "problem-b")]


async def test_an_episode_that_failed_is_compared_with_none() -> None:
    failed = said("a", 3, "9", ending=Ending.FAILED, error="the shop died")
    assert await rewards_of([SHORT, failed, LONG], shortest) == [
        1.0,
        Unscored("episode failed: the shop died"),
        0.0,
    ]
    assert await rewards_of([replace(failed, chain=0)], shortest) == [
        Unscored("episode failed: the shop died")
    ]


async def test_a_greedy_episode_is_compared_with_no_sampled_one() -> None:
    greedy = said("a", 3, "9", role="baseline")
    assert await rewards_of([SHORT, LONG, greedy], shortest) == [1.0, 0.0, 1.0]


async def test_a_group_has_the_answering_speaker_of_each_episode() -> None:
    team = [
        said("a", 0, "What?", agent="planner", episode="e0"),
        replace(said("a", 0, "9", agent="searcher", episode="e0", answered="9"), id="s0"),
    ]
    assert await rewards_of([*team, SHORT], shortest) == [1.0, 1.0, 0.0]


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        ([1.0], "gives: got 1 scores for 2 episodes"),
        ([1.0, 0.0, 0.5], "gives: got 3 scores for 2 episodes"),
        (1.0, "gives: got 1.0 (float), expected a list of 2 scores"),
        (None, "gives: got None (NoneType), expected a list of 2 scores"),
        (KeyError("x"), "gives: KeyError: 'x'"),
        (ServiceFailure("no judge"), "gives: ServiceFailure: no judge"),
    ],
)
async def test_scores_that_are_not_one_for_each_leave_the_group_unscored(
    result: Any, reason: str
) -> None:
    for found in await rewards_of([SHORT, LONG], giving(result)):
        assert isinstance(found, Unscored) and found.reason.partition(", at ")[0] == reason


async def test_a_score_that_is_no_number_leaves_its_own_episode_unscored() -> None:
    bad = "gives: got nan (float), expected a finite number, from -1e+15 to 1e+15"
    results = [Score(0.5, parts={"length": 2.0}, per_turn=(0.5,)), float("nan")]
    first, second = await score([SHORT, LONG], {giving(results): 1.0})
    assert (first.rewards, first.turn_rewards) == ({"gives": 0.5, "gives/length": 2.0}, (0.5,))
    assert second.reward == Unscored(bad)


async def test_a_reward_in_a_process_of_its_own_compares_too() -> None:
    assert await rewards_of([LONG, SHORT], process_parts.rank) == [1.0, 0.0]


def test_a_group_is_lent_alone_and_to_rewards_only() -> None:
    def both(group: Group, trajectory: Trajectory) -> list[float]:
        return []

    class Game(Environment): ...

    def playing(game: Game, group: Group) -> list[float]:
        return []

    playing.__annotations__ = {"game": Game, "group": Group}
    for function, named in ((both, "Trajectory"), (playing, "Game")):
        with pytest.raises(ValueError, match=f"Group and {named}\\. "):
            _ = reward(function).signature

    def look(group: Group) -> str:
        return ""

    with pytest.raises(ValueError, match="Group, which only"):
        _ = tool(look).signature
