"""`rollout.branching` with several speakers, failures, ReMax and refills: groups stay whole."""

from dataclasses import replace
from pathlib import Path

import pytest

from agentfly_core.algorithms.grpo import GRPO
from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.authoring.environment import ServiceFailure
from agentfly_core.authoring.tool import tool
from agentfly_core.config.episodes import Branching, Rollout
from agentfly_core.pipeline.playing import of_step
from agentfly_core.records.problem_schedule import ProblemSchedule
from agentfly_core.records.trajectory import Branch, Ending, Message
from agentfly_core.rollout.episode import Episode
from agentfly_core.testing.episodes import play_all
from agentfly_core.testing.learning import advantages_of, update_job
from agentfly_core.training.data import read_update_data
from tests.support.branching import (
    EXECUTED,
    SPIKES,
    Uncertain,
    add,
    fork_turns,
    leaves,
    numbered,
    rules,
    spike,
)
from tests.support.counting import Count


@pytest.fixture(autouse=True)
def no_calls() -> None:
    EXECUTED.clear()


async def helped(episode: Episode) -> Ending:
    """Reply, let a helper call a tool and read its answer, and reply again."""
    helper = episode.speaker("helper", tools=(add,))
    await episode.reply(*episode.opening)
    asked = await helper.reply(Message("user", "Help."))
    await helper.reply(*await helper.call(*asked.calls))
    await episode.reply(Message("user", "Finish."))
    return Ending.NO_TOOL_CALLS


async def test_a_fork_of_one_speaker_is_a_fork_of_all() -> None:
    spec = replace(rules(SPIKES), agent=helped)
    played = await leaves(Uncertain(spike(2)), spec)
    assert [(one.chain, one.agent) for one in played] == [
        (chain, agent) for chain in (0, 1) for agent in ("helped", "helper")
    ]
    for parent, child in (played[0], played[2]), (played[1], played[3]):
        assert child.branch == Branch(parent.id, 1)
        assert child.turns[0] == parent.turns[0]
        assert child.turns[1].reply != parent.turns[1].reply
    assert len(EXECUTED) == 1
    hard = advantages_of(GRPO(credit="tree_hard"), played, [1, 0, 0, 1])
    firsts = [line[0] for line in hard]
    assert firsts == pytest.approx([0.0] * 4, abs=1e-6)
    assert [line[-1] > 0 for line in hard] == [True, False, False, True]


async def test_a_speaker_is_compared_with_its_own_first_reply() -> None:
    def entropy(conversation: Conversation) -> float:
        return 4.0 if conversation.speaker == "helper" else 1.0

    played = await leaves(Uncertain(entropy), replace(rules(SPIKES), agent=helped))
    assert fork_turns(played) == []


async def test_greedy_replies_do_not_fork() -> None:
    async def careful(episode: Episode) -> Ending:
        asked = await episode.reply(*episode.opening)
        await episode.reply(*await episode.call(*asked.calls), temperature=0)
        return Ending.NO_TOOL_CALLS

    spec = replace(rules(SPIKES), agent=careful)
    assert fork_turns(await leaves(Uncertain(spike(1)), spec)) == []


async def test_the_greedy_episode_of_remax_does_not_fork(tmp_path: Path) -> None:
    rollout = Rollout(branching=Branching(total=4, init=2))
    specs = of_step(rollout, (0, 7), numbered(3), 7, greedy=True)
    played, *_ = await play_all(specs, rules(SPIKES), Uncertain(spike(2)))
    roles = ["train"] * 4 + ["baseline"]
    assert [(one.chain, one.role) for one in played] == [*enumerate(roles)] * 3
    assert [one.branch is not None for one in played] == [False, False, True, True, False] * 3
    data = read_update_data(update_job(tmp_path, played, [one.chain for one in played]))
    assert data.outcomes.rewards.tolist() == [0, 1, 2, 3] * 3
    assert data.outcomes.baselines.tolist() == [4] * 12


@pytest.mark.parametrize("greedy", [False, True])
def test_a_refill_has_whole_problems_in_its_shards(greedy: bool) -> None:
    rollout = Rollout(problems=6, shard=32, refills=1, branching=Branching())
    schedule = ProblemSchedule(1, rollout, {"single": 6})
    first = schedule.first_round(3, greedy)
    size = rollout.beginnings_of_shard
    for drawn, count in ((first, 6), (schedule.next_round(first, {"single": 5}), 5)):
        specs = of_step(rollout, (0, 3), numbered(count), 3, greedy)
        shards = [specs[start : start + size] for start in range(0, len(specs), size)]
        assert len(shards) == len(drawn.shards)
        problems = [{one.problem.id for one in shard if one.role == "train"} for shard in shards]
        assert sum(map(len, problems)) == count
        assert sum(one.leaves for one in specs) == count * (16 + greedy)


async def test_children_outlive_a_parent_that_fails() -> None:
    @tool
    async def fragile(number: int, *, count: Count) -> str:
        """Fail at the second call."""
        EXECUTED.append(number)
        if len(EXECUTED) == 2:
            raise ServiceFailure("The service is down.")
        return str(number)

    parent, *children = await leaves(Uncertain(spike(1), "fragile"), rules(SPIKES, fragile), 4)
    assert parent.ending is Ending.FAILED
    assert [one.ending for one in children] == [Ending.NO_TOOL_CALLS] * 3
    assert children[0].branch == Branch(parent.id, 1)
    assert [one.turns[0] for one in children] == [parent.turns[0]] * 3


async def test_a_failed_fork_leaves_fresh_chains() -> None:
    class Broken(Count):
        async def snapshot(self) -> bytes:
            raise RuntimeError("The disk is full.")

    @tool
    async def note(number: int, *, broken: Broken) -> str:
        """Note."""
        return str(number)

    parent, *others = await leaves(Uncertain(spike(1), "note"), rules(SPIKES, note), 4)
    assert parent.ending is Ending.FAILED
    assert [(one.chain, one.branch, one.ending) for one in others] == [
        (chain, None, Ending.NO_TOOL_CALLS) for chain in (1, 2, 3)
    ]
