"""Rewards that read all trajectories of an episode, and the groups of named instances."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from agentfly_core.algorithms.grpo import GRPO
from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.authoring.environment import Environment
from agentfly_core.authoring.reward import reward
from agentfly_core.authoring.scoring import score
from agentfly_core.authoring.tool import tool
from agentfly_core.records import ledger
from agentfly_core.records.parquet import read_trajectories, write_trajectories
from agentfly_core.records.speakers import earned_by_speaker, group_of
from agentfly_core.records.trajectory import (
    Ending,
    Group,
    Message,
    Problem,
    Score,
    Scored,
    Team,
    Trajectory,
    Unscored,
)
from agentfly_core.rl.advantage import sequences
from agentfly_core.rl.batch import pack
from agentfly_core.rl.outcomes import outcomes
from agentfly_core.rollout.episode import Episode
from agentfly_core.testing.episodes import ADD, episode_specs, play_all, rollout_spec, scripted
from agentfly_core.training.data import _with_spread
from tests.support import process_parts

WINNERS = [1, 2, 2, 3]
"""The winner of a problem's four episodes, each a debate of three."""


async def debate(episode: Episode) -> Ending:
    """Three debaters reply at the same time; the agent itself says who won."""
    debaters = [episode.speaker("debater") for _ in range(3)]
    await episode.gather(*(one.reply(Message("user", "Argue.")) for one in debaters))
    episode.answer("done")
    return Ending.NO_TOOL_CALLS


async def argue(conversation: Conversation) -> str:
    """A policy in which the winner of each episode says more."""
    won = conversation.speaker == f"debater/{WINNERS[conversation.chain]}".removesuffix("/1")
    return "long argument" if won else "short"


@reward
def longest(team: Team) -> Score:
    """1 for the debater with the longest argument."""
    debaters = team.of("debater")
    lengths = [len(one.turns[0].reply.content) for one in debaters]
    won = [float(length == max(lengths)) for length in lengths]
    return Score(1.0, by_speaker={f"debater/{n}": value for n, value in enumerate(won, 1)})


async def debated() -> list[Trajectory]:
    specs = episode_specs(ADD, chains=4)
    return (await play_all(specs, rollout_spec(agent=debate), scripted(argue)))[0]


def advantages(trajectories: Sequence[Trajectory], scores: Sequence[Scored]) -> dict[str, float]:
    """The advantage of each trajectory's last token, as `debater/2 of 3` for that chain."""
    batch = pack(trajectories)
    earned = outcomes(trajectories, scores, {}, {"longest": 1.0}, batch)
    layout = sequences(batch, len(trajectories))
    values = layout.gather(GRPO().estimate_advantages(earned, batch).advantages)
    pairs = zip(trajectories, values, layout.lengths.tolist(), strict=True)
    return {f"{t.agent} of {t.chain}": float(row[n - 1]) for t, row, n in pairs if n}


async def test_a_reward_gives_each_debater_its_own() -> None:
    played = await debated()
    scores = await score(played, {longest: 1.0}, "debate")
    rewards = {(t.agent, t.chain): s.reward for t, s in zip(played, scores, strict=True)}
    assert [rewards["debater", chain] for chain in range(4)] == [1.0, 0.0, 0.0, 0.0]
    assert [rewards["debater/2", chain] for chain in range(4)] == [0.0, 1.0, 1.0, 0.0]
    assert scores[0].rewards == {
        "longest": 1.0,
        "longest/speaker/debater/1": 1.0,
        "longest/speaker/debater/2": 0.0,
        "longest/speaker/debater/3": 0.0,
    }


async def test_an_instance_is_compared_with_itself_in_other_episodes() -> None:
    played = await debated()
    taught = advantages(played, await score(played, {longest: 1.0}, "debate"))
    # 0, 1, 1, 0: mean 1/2, deviation sqrt(1/3); 1, 0, 0, 0: mean 1/4, deviation 1/2
    second = [taught[f"debater/2 of {chain}"] for chain in range(4)]
    assert second == [pytest.approx(a, abs=0.005) for a in (-0.87, 0.87, 0.87, -0.87)]
    first = [taught[f"debater of {chain}"] for chain in range(4)]
    assert first == [pytest.approx(a, abs=0.005) for a in (1.5, -0.5, -0.5, -0.5)]


async def test_refills_use_the_groups_of_the_learner() -> None:
    played = await debated()
    scores = await score(played, {longest: 1.0}, "debate")
    by_id = {one.trajectory_id: one for one in scores}
    # each episode has one winner of three, so the means of the role are equal
    assert [row.outcome for row in ledger.ledger(1, played, scores)] == ["used"]
    assert _with_spread(played, by_id) == played
    assert earned_by_speaker(played[1:4], by_id) == {
        "debater/1": 1.0,
        "debater/2": 0.0,
        "debater/3": 0.0,
    }
    debaters = [t for t in played if t.speaker == "debater"]
    assert len({group_of(t, by_id[t.id]) for t in debaters}) == 3


async def test_instances_without_a_name_share_the_value_of_their_role() -> None:
    @reward
    def second(team: Team) -> Score:
        return Score(0.0, by_speaker={"debater": 0.5, "debater/2": 1.0})

    played = await debated()
    scores = await score(played, {second: 1.0}, "debate")
    pairs = [(t.agent, s.reward) for t, s in zip(played, scores, strict=True) if t.chain == 0]
    assert pairs == [("debate", 0.0), ("debater", 0.5), ("debater/2", 1.0), ("debater/3", 0.5)]
    groups = {t.agent: group_of(t, s) for t, s in zip(played, scores, strict=True)}
    assert groups["debater"] == groups["debater/3"] == played[1].group != groups["debater/2"]


async def test_an_instance_that_no_episode_has_leaves_them_unscored() -> None:
    @reward
    def fourth(team: Team) -> Score:
        return Score(0.0, by_speaker={"debater/4": 1.0})

    scores = await score(await debated(), {fourth: 1.0}, "debate")
    assert {one.reward for one in scores} == {
        Unscored(
            "fourth: by_speaker has the key 'debater/4', but the speakers of these episodes are "
            "debate, debater"
        )
    }


class Table(Environment):
    async def reset(self, problem: Problem) -> None:
        self.problem = problem.id


@reward
async def seated(team: Team, table: Table) -> Score:
    """The number of replies of the team, during the rollout."""
    replies = sum(len(one.turns) for one in team.trajectories)
    return Score(float(replies), {"at": len(table.problem)})


async def test_a_reward_sees_the_team_during_the_rollout_and_after_it(tmp_path: Path) -> None:
    seen: list[list[str]] = []

    @reward
    async def agents(team: Team, table: Table) -> float:
        seen.append([one.agent for one in team.trajectories])
        return 1.0

    @reward(name="later")
    def agents_later(team: Team) -> float:
        seen.append([one.agent for one in team.trajectories])
        return 1.0

    rules = rollout_spec(agent=debate, rewards=[seated, agents], limits={Table: 1})
    played = (await play_all(episode_specs(ADD), rules, scripted(argue)))[0]
    assert played[0].observed["seated"] == Score(3.0, {"at": 9.0})
    write_trajectories(tmp_path / "t.parquet", played)
    stored = read_trajectories(tmp_path / "t.parquet")
    scores = await score(stored, {seated: 1.0, agents_later: 1.0}, "debate")
    assert scores[0].reward == 4.0
    assert seen == [["debate", "debater", "debater/2", "debater/3"]] * 2


async def test_a_reward_in_another_process_gets_the_team() -> None:
    scores = await score(await debated(), {process_parts.spoke: 1.0}, "debate")
    assert {one.reward for one in scores} == {3.0}


def test_a_reward_that_compares_and_a_tool_get_no_team() -> None:
    def both(group: Group, team: Team) -> list[float]:
        return []

    def look(team: Team) -> str:
        return ""

    with pytest.raises(ValueError, match="has parameters of the types Group and Team"):
        _ = reward(both).signature
    with pytest.raises(ValueError, match="Team"):
        _ = tool(look).signature
