"""One score for each episode, also of several speakers."""

from typing import Any

from agentfly_core.authoring.reward import Reward, reward
from agentfly_core.authoring.scoring import score
from agentfly_core.records.trajectory import Ending, Score, Scored, Trajectory, Unscored
from agentfly_core.testing.trajectories import trajectory, turn


def spoken(agent: str, reply: str, **more: Any) -> Trajectory:
    said = turn([1], {2: 0.0}, reply=reply)
    return trajectory(said, said, name=agent, agent=agent, episode="e0", **more)


PLANNER, SEARCHER, SECOND = (
    spoken("planner", "99"),
    spoken("searcher", "98"),
    spoken("searcher/2", "97"),
)
TEAM = [SEARCHER, PLANNER, SECOND]


def giving(result: Score) -> tuple[Reward, list[str]]:
    """A reward with this result, and the speakers of the trajectories that it got."""
    seen: list[str] = []

    def gives(trajectory: Trajectory) -> Score:
        seen.append(trajectory.agent)
        return result

    return reward(gives), seen


@reward
def exact(trajectory: Trajectory) -> float:
    return float(trajectory.answer == "99")


async def test_the_agents_own_trajectory_is_scored_once_for_all_speakers() -> None:
    gives, seen = giving(Score(0.5))
    found = await score(TEAM, {gives: 2.0}, "planner")
    assert seen == ["planner"]
    assert found == [Scored(one.id, {"gives": 0.5}, (), 1.0) for one in TEAM]


async def test_who_said_the_answer_is_scored_whoever_the_agent_is() -> None:
    said = [spoken("searcher", "98", answered="99"), spoken("planner", "97")]
    assert [one.reward for one in await score(said, {exact: 1.0}, "planner")] == [1.0, 1.0]


async def test_a_speaker_has_the_reward_that_it_is_given_apart() -> None:
    gives, _ = giving(Score(1.0, by_speaker={"searcher": 0.25}))
    found = await score(TEAM, {gives: 2.0, exact: 1.0}, "planner")
    assert [one.reward for one in found] == [1.5, 3.0, 1.5]
    named = {"gives": 1.0, "gives/speaker/searcher": 0.25, "exact": 1.0}
    assert [one.rewards for one in found] == [named] * 3


async def test_a_speaker_that_no_episode_has_leaves_them_unscored() -> None:
    gives, _ = giving(Score(1.0, by_speaker={"plannr": 0.5}))
    missing = Unscored(
        "gives: by_speaker has the key 'plannr', but the speakers of these episodes are "
        "searcher, planner"
    )
    assert [one.reward for one in await score(TEAM, {gives: 1.0}, "planner")] == [missing] * 3


async def test_a_speaker_need_not_speak_in_every_episode() -> None:
    gives, _ = giving(Score(1.0, by_speaker={"searcher": 0.5}))
    alone = trajectory(turn([1], {2: 0.0}), name="alone", agent="planner")
    found = await score([*TEAM, alone], {gives: 1.0}, "planner")
    assert [one.reward for one in found] == [0.5, 1.0, 0.5, 1.0]


async def test_what_a_speaker_is_given_must_be_a_number() -> None:
    gives, _ = giving(Score(1.0, by_speaker={"planner": float("nan")}))
    (found,) = await score([PLANNER], {gives: 1.0})
    assert isinstance(found.reward, Unscored)
    assert found.reward.reason.startswith("gives: got nan (float), expected a finite number")


async def test_rewards_of_turns_are_of_the_trajectory_that_was_scored() -> None:
    gives, _ = giving(Score(1.0, per_turn=(0.25, 0.75)))
    found = await score(TEAM, {gives: 1.0}, "planner")
    assert [one.turn_rewards for one in found] == [(), (0.25, 0.75), ()]


async def test_what_was_observed_stands_with_the_trajectory_that_answered() -> None:
    gives, seen = giving(Score(0.0))
    watched = spoken("planner", "99", observed={"gives": Score(0.75)})
    found = await score([SEARCHER, watched], {gives: 1.0}, "planner")
    assert ([one.reward for one in found], seen) == ([0.75, 0.75], [])


async def test_a_failed_episode_leaves_every_speaker_unscored() -> None:
    lost = [spoken(name, "", ending=Ending.FAILED, error="died") for name in ("planner", "helper")]
    found = await score(lost, {exact: 1.0}, "planner")
    assert [one.reward for one in found] == [Unscored("episode failed: died")] * 2


async def test_episodes_are_scored_each_by_its_own_speakers() -> None:
    other = trajectory(turn([1], {2: 0.0}, reply="99"), name="other", agent="planner")
    found = await score([SEARCHER, other, spoken("planner", "98")], {exact: 1.0}, "planner")
    assert [(one.trajectory_id, one.reward) for one in found] == [
        ("searcher", 0.0),
        ("other", 1.0),
        ("planner", 0.0),
    ]
