"""`rollout.branching`: episodes that fork by the entropy of replies after answers of tools."""

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError

from agentfly_core.authoring.environment import Environment
from agentfly_core.authoring.tool import tool
from agentfly_core.config.episodes import Branching, Rollout
from agentfly_core.pipeline.playing import of_step
from agentfly_core.records.parquet import read_trajectories, write_trajectories
from agentfly_core.records.trajectory import Branch, Ending, Problem, ToolCall
from agentfly_core.rollout.episode import Episode
from agentfly_core.testing.episodes import play, play_all, rollout_spec
from tests.support.branching import (
    CALLS,
    EXECUTED,
    SPIKES,
    VOCABULARY,
    Uncertain,
    add,
    fork_turns,
    leaves,
    numbered,
    rule,
    rules,
    spike,
)


class Tape(Environment):
    """An environment that cannot be restored."""

    async def reset(self, problem: Problem) -> None:
        self.count = 0


@tool
async def wind(number: int, *, tape: Tape) -> str:
    """Wind."""
    EXECUTED.append(number)
    tape.count += number
    return str(tape.count)


@pytest.fixture(autouse=True)
def no_calls() -> None:
    EXECUTED.clear()


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[pytest.mark.long] * (seed < 3)) for seed in range(5)]
)
async def test_random_trees_have_total_distinct_leaves(seed: int) -> None:
    total, init = ((16, 8), (16, 2), (16, 1), (12, 4), (8, 4))[seed]
    sampler = Uncertain(lambda conversation: conversation.seed % 7, early=True)
    played = await leaves(sampler, rules(rule(), max_turns=CALLS), total, init, problems=100)
    for number in range(100):
        mine = [one for one in played if one.problem.id == f"p{number:03}"]
        assert [one.chain for one in mine] == [*range(total)]
        assert len({one.id for one in mine}) == len({one.seed for one in mine}) == total
        assert sum(one.branch is not None for one in mine) <= total - init
        assert {one.ending for one in mine} <= {Ending.NO_TOOL_CALLS, Ending.MAX_TURNS}
        assert max(len(one.turns) for one in mine) <= CALLS
    assert len(played) == 100 * total
    assert len(fork_turns(played)) > 50


@pytest.mark.parametrize("rise", [-2.0, -0.5, 0.0, 0.9])
async def test_the_frequency_of_forks_is_the_probability(rise: float) -> None:
    by, episodes = rule(alpha=0.5, beta=1.5), 400
    sampler = Uncertain(lambda one: 2.0 + (rise if one.turn == 1 else -2.0 * (one.turn > 1)))
    played = await leaves(sampler, rules(replace(by, beta=1.5), max_turns=2), problems=episodes)
    expected = min(1.0, max(0.0, 0.5 + 1.5 * rise / math.log(VOCABULARY)))
    rate = len(fork_turns(played)) / episodes
    assert abs(rate - expected) <= 2.576 * math.sqrt(expected * (1 - expected) / episodes)


@pytest.mark.parametrize("turn", [1, 2, 3])
async def test_a_fork_is_at_the_turn_of_the_entropy_spike(turn: int) -> None:
    for by in (SPIKES, rule("threshold", alpha=0.5, beta=0.2)):
        parent, child = await leaves(Uncertain(spike(turn)), rules(by))
        assert child.branch == Branch(parent.id, turn)
        assert child.turns[:turn] == parent.turns[:turn]
        assert child.turns[turn].reply != parent.turns[turn].reply


async def test_replies_before_any_tool_answer_do_not_fork() -> None:
    played = await leaves(Uncertain(spike(0)), rules(rule("random", alpha=1.0), max_turns=1))
    assert [one.ending for one in played] == [Ending.MAX_TURNS] * 2
    assert fork_turns(played) == []


async def test_an_agent_may_call_a_tool_before_its_first_reply() -> None:
    async def counts_first(episode: Episode) -> Ending:
        answers = await episode.call(ToolCall("add", {"number": 1}))
        await episode.reply(*episode.opening, *answers)
        return Ending.NO_TOOL_CALLS

    spec = replace(rules(rule("random", alpha=1.0)), agent=counts_first)
    played = await leaves(Uncertain(spike(0)), spec)
    assert [one.ending for one in played] == [Ending.NO_TOOL_CALLS] * 2
    assert fork_turns(played) == []


def test_the_mean_of_the_first_k_entropies_decides() -> None:
    by = replace(rule(alpha=0.0, beta=math.log(VOCABULARY)), k=2)
    assert by.probability([1.0, 1.0, 9.0], [1.25, 1.75, 9.0]) == pytest.approx(0.5)


async def test_a_second_batch_is_like_that_of_a_fresh_sampler() -> None:
    sampler = Uncertain(spike(1))
    spec = rules(SPIKES)
    await leaves(sampler, spec, 4, 2, problems=3)
    sampler.entropy = spike(3)
    second = await leaves(sampler, spec, 4, 2, problems=3)
    assert second == await leaves(Uncertain(spike(3)), rules(SPIKES), 4, 2, problems=3)
    assert set(fork_turns(second)) == {3}


async def test_entropies_are_in_the_record(tmp_path: Path) -> None:
    played = await leaves(Uncertain(spike(1)), rules(SPIKES))
    write_trajectories(tmp_path / "episodes.parquet", played)
    stored = read_trajectories(tmp_path / "episodes.parquet")
    assert stored == played
    assert [turn.sampled[0].entropies[0] for turn in stored[0].turns[:2]] == [1.0, 4.0]


async def test_every_leaf_replays_with_equal_observations() -> None:
    played = await leaves(Uncertain(lambda one: one.seed % 7), rules(rule()), 8, 2, problems=10)
    assert len(fork_turns(played)) > 20
    for leaf in played:
        replies = [[*turn.reply.calls] or turn.reply.content for turn in leaf.turns]
        again = await play(replies, add, problem=leaf.problem)  # type: ignore[arg-type]
        assert again.observations == leaf.observations
        assert [turn.given for turn in again.turns] == [turn.given for turn in leaf.turns]


async def test_shared_calls_are_executed_once() -> None:
    parent, child = await leaves(Uncertain(spike(3)), rules(SPIKES))
    assert len(EXECUTED) == CALLS
    assert parent.observations == child.observations


async def test_calls_without_snapshots_are_executed_again() -> None:
    parent, child = await leaves(Uncertain(spike(2), "wind"), rules(SPIKES, wind))
    assert child.branch == Branch(parent.id, 2)
    assert len(EXECUTED) == CALLS + 2 + 1
    numbers = [call.arguments["number"] for turn in child.turns[:3] for call in turn.reply.calls]
    assert [int(one.content) for one in child.observations] == [
        sum(numbers[: end + 1]) for end in range(CALLS)
    ]


async def test_a_fork_may_fork_again_at_its_own_reply() -> None:
    played = await leaves(Uncertain(spike(2)), rules(SPIKES), total=4)
    assert [one.branch and one.branch.turns for one in played] == [None, 2, 2, 2]
    ids = [one.id for one in played]
    assert [one.branch.parent for one in played if one.branch] == ids[:3]
    assert len({one.turns[2].reply.content + str(one.turns[2].reply.calls) for one in played}) == 4


async def test_forks_of_forks_share_their_parents_turns() -> None:
    played = await leaves(Uncertain(lambda one: one.seed % 7), rules(rule()), 4, 1, problems=20)
    by_id = {one.id: one for one in played}
    later = 0
    for one in played:
        if one.branch and (parent := by_id[one.branch.parent]).branch:
            assert one.turns[: one.branch.turns] == parent.turns[: one.branch.turns]
            later += one.branch.turns > parent.branch.turns
    assert later > 3


async def test_unused_forks_become_fresh_chains() -> None:
    flat = Uncertain(lambda _: 1.0)
    played = await leaves(flat, rules(SPIKES), 6, 2, problems=2)
    assert fork_turns(played) == []
    assert len(EXECUTED) == 2 * 6 * CALLS
    chains = of_step(Rollout(group_size=6), (0, 7), numbered(2), 7, greedy=False)
    assert [(one.episode, one.chain, one.seed) for one in played] == [
        (one.id, one.chain, one.seed) for one in chains
    ]


def test_mode_never_plays_the_chains_of_a_group() -> None:
    problem, chains = Problem("p", "?"), Rollout(group_size=6)
    never = Rollout(branching=Branching(total=6, init=2, mode="never"))
    assert of_step(never, (0,), [problem], 1, False) == of_step(chains, (0,), [problem], 1, False)


async def test_random_forks_at_the_rate_of_alpha() -> None:
    played = await leaves(Uncertain(spike(1)), rules(rule("random", alpha=0.3)), problems=400)
    turns = Counter(fork_turns(played))
    expected = {turn: 400 * 0.3 * 0.7 ** (turn - 1) for turn in (1, 2, 3)}
    none = 400 * 0.7**3
    chi = sum((turns[turn] - one) ** 2 / one for turn, one in expected.items())
    chi += (400 - turns.total() - none) ** 2 / none
    assert chi < 11.34  # the 99 % quantile with three degrees of freedom
    assert all(turn.sampled[0].entropies == () for one in played for turn in one.turns)


async def test_permuted_entropies_fork_as_random_does() -> None:
    # one reply in three has the high entropy, wherever it is
    shuffled = Uncertain(lambda one: 4.0 if one.turn and one.seed % 3 == 0 else 1.0)
    by = rule(alpha=0.1, beta=0.6 * math.log(VOCABULARY) / 3)
    played = await leaves(shuffled, rules(by), problems=400)
    rate = 0.1 + 0.6 / 3
    turns = Counter(fork_turns(played))
    expected = {turn: 400 * rate * (1 - rate) ** (turn - 1) for turn in (1, 2, 3)}
    none = 400 * (1 - rate) ** 3
    chi = sum((turns[turn] - one) ** 2 / one for turn, one in expected.items())
    chi += (400 - turns.total() - none) ** 2 / none
    assert chi < 11.34


async def test_metrics_count_forks_and_executed_calls() -> None:
    rollout = Rollout(branching=Branching(total=2, init=1))
    specs = of_step(rollout, (0, 7), [Problem("p", "?")], 7, greedy=False)
    _, _, metrics = await play_all(specs, rules(SPIKES), Uncertain(spike(2)))
    assert metrics["branching/forks"] == 1
    assert metrics["branching/decisions"] == 2  # none after the only fork
    assert metrics["branching/executed_calls"] == CALLS + 1 == len(EXECUTED)


async def test_fork_of_an_agent_is_refused_beside_branching() -> None:
    async def agent(episode: Episode) -> Ending:
        await episode.reply(*episode.opening)
        await episode.fork()
        return Ending.NO_TOOL_CALLS

    spec = replace(rollout_spec(add, agent=agent), branching=SPIKES)
    played = await leaves(Uncertain(spike(1)), spec)
    assert {one.ending for one in played} == {Ending.AGENT_ERROR}
    assert "rollout.branching and episode.fork cannot be used" in str(played[0].error)


def test_branching_sets_the_group_size() -> None:
    assert Rollout(branching=Branching(total=12, init=6)).group_size == 12
    assert Rollout.model_validate({"branching": {"total": 4, "init": 2}}).group_size == 4
    with pytest.raises(ValidationError, match="remove group_size"):
        Rollout(group_size=8, branching=Branching())
    with pytest.raises(ValidationError, match="multiple of init"):
        Branching(total=16, init=6)


@pytest.mark.parametrize(("shard", "chains"), [(32, 16), (40, 16), (8, 8)])
def test_a_shard_has_whole_problems(shard: int, chains: int) -> None:
    assert Rollout(shard=shard, branching=Branching()).beginnings_of_shard == chains
