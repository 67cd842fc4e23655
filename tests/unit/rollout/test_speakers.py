"""Several speakers in one episode."""

import re
from pathlib import Path

import pytest

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.authoring.environment import Environment
from agentfly_core.authoring.reward import reward
from agentfly_core.authoring.tool import tool
from agentfly_core.records.parquet import read_trajectories, write_trajectories
from agentfly_core.records.trajectory import (
    Ending,
    Message,
    Observation,
    Problem,
    Score,
    ToolCall,
    Trajectory,
)
from agentfly_core.rl.batch import pack
from agentfly_core.rollout.episode import Agent, Episode
from agentfly_core.rollout.history import timeline
from agentfly_core.system.formats import hashing
from agentfly_core.testing.episodes import (
    ADD,
    episode_specs,
    play_all,
    rollout_spec,
    scripted,
)
from agentfly_core.testing.letters import as_letters, encode
from agentfly_core.tools.answer import answer
from agentfly_core.tools.calculator import calculator
from tests.support.policies import numbered


async def named(conversation: Conversation) -> str:
    """A policy that replies `planner 3` in the planner's third turn."""
    return f"{conversation.speaker} {conversation.turn}"


async def team(episode: Episode) -> Ending:
    """A planner and two workers; the agent itself only gives the answer."""
    planner = episode.speaker("planner", system="Plan.")
    workers = [episode.speaker("worker", tools=[calculator]) for _ in range(2)]
    plan = await planner.reply(Message("user", episode.problem.prompt))
    for worker in workers:
        await worker.reply(Message("user", plan.content))
        await worker.call(ToolCall("calculator", {"expression": "41+58"}))
    done = await planner.reply(Message("user", "Done."))
    episode.answer(done.content)
    return Ending.NO_TOOL_CALLS


async def played(agent: Agent, *problems: Problem) -> list[Trajectory]:
    rules = rollout_spec(agent=agent, max_turns=9)
    return (await play_all(episode_specs(*(problems or [ADD])), rules, scripted(named)))[0]


async def test_each_speaker_has_a_trajectory_of_its_own(tmp_path: Path) -> None:
    found = await played(team)
    assert {t.agent: as_letters(t) for t in found} == {
        "planner": "^sPlan.$^u41+58?$^aplanner 0$^uDone.$^aplanner 3$",
        "team": "",
        "worker": "^uplanner 0$^aworker 1$",
        "worker/2": "^uplanner 0$^aworker/2 2$",
    }
    assert {t.agent: t.answer for t in found if t.answered} == {"team": "planner 3"}
    assert [t.closing for t in found][2:] == [(Observation("calculator", "99"),)] * 2
    assert {t.ending for t in found} == {Ending.NO_TOOL_CALLS}
    assert [turn.call for turn in found[0].turns] == [0, 3]
    write_trajectories(tmp_path / "t.parquet", found)
    assert read_trajectories(tmp_path / "t.parquet") == found


async def test_speakers_are_compared_with_those_of_their_role_and_problem() -> None:
    found = await played(team, ADD, Problem("b", "1+1?"))
    first = [t for t in found if t.problem == ADD]
    assert len({t.id for t in found}) == 8 and len({t.episode for t in found}) == 2
    groups = {t.agent: t.group for t in first}
    assert groups["worker"] == groups["worker/2"]
    assert len(set(groups.values())) == 3
    assert {t.group for t in first}.isdisjoint(t.group for t in found if t.problem != ADD)
    main = next(t for t in first if t.agent == "team")
    assert main.id == hashing.short(7, "add-41-58", 0, "team")
    assert (main.episode, main.group) == (
        hashing.short(7, "add-41-58", 0),
        hashing.short(7, "add-41-58"),
    )
    assert {t.speaker for t in found} == {"planner", "team", "worker"}


class Counter(Environment):
    """Counts."""

    async def reset(self, problem: Problem) -> None:
        self.count = 0


@tool
async def up(*, counter: Counter) -> int:
    counter.count += 1
    return counter.count


@reward
async def counted(counter: Counter, trajectory: Trajectory) -> float:
    counter.count += 10
    return float(trajectory.answer == "7") + counter.count


async def test_a_reward_sees_the_trajectory_that_answered_once() -> None:
    async def agent(episode: Episode) -> Ending:
        asker = episode.speaker("asker", tools=[up, answer])
        await episode.reply(*episode.opening)
        await asker.reply(Message("user", "Ask."))
        await asker.call(ToolCall("up", {}), ToolCall("answer", {"answer": "7"}))
        raise AssertionError("the episode is over")

    rules = rollout_spec(up, agent=agent, rewards=[counted])
    found, timings, _ = await play_all(episode_specs(ADD), rules, scripted(numbered))
    assert [(t.agent, t.ending, t.answer) for t in found] == [
        ("agent", Ending.TERMINAL, None),
        ("asker", Ending.TERMINAL, "7"),
    ]
    assert [t.observed for t in found] == [{}, {"counted": Score(12.0)}]
    assert [timing.trajectory_id for timing in timings] == [found[1].id]


async def test_each_speaker_has_its_own_limit_of_turns() -> None:
    async def agent(episode: Episode) -> Ending:
        short = episode.speaker("short", max_turns=1)
        for _ in range(3):
            await episode.reply(Message("user", "On."))
        assert (await short.reply(Message("user", "Sum up."))).content == "short 3"
        await short.reply(Message("user", "More."))
        raise AssertionError("its only turn is over")

    found = await played(agent)
    assert [(t.agent, len(t.turns), t.ending) for t in found] == [
        ("agent", 3, Ending.MAX_TURNS),
        ("short", 1, Ending.MAX_TURNS),
    ]


async def test_a_further_speaker_changes_no_seed_of_what_was_said_before_it() -> None:
    async def lone(episode: Episode) -> Ending:
        await episode.reply(*episode.opening)
        await episode.reply(Message("user", "Sure?"))
        return Ending.NO_TOOL_CALLS

    async def judged(episode: Episode) -> Ending:
        await lone(episode)
        await episode.speaker("judge").reply(*episode.opening)
        return Ending.NO_TOOL_CALLS

    async def seeds(agent: Agent) -> list[int]:
        found: list[int] = []

        async def policy(conversation: Conversation) -> str:
            found.append(conversation.seed)
            return "ok"

        await play_all(episode_specs(ADD), rollout_spec(agent=agent), scripted(policy))
        return found

    alone, watched = await seeds(lone), await seeds(judged)
    assert watched[:2] == alone and len({*watched}) == 3


async def test_a_seed_follows_from_speaker_prompt_and_repetition() -> None:
    seeds: list[int] = []

    async def policy(conversation: Conversation) -> str:
        seeds.append(conversation.seed)
        return "ok"

    async def agent(episode: Episode) -> Ending:
        planner, critic = episode.speaker("planner"), episode.speaker("critic")
        for speaker in (planner, critic, planner):
            await speaker.context(Message("user", "So?")).reply()
        return Ending.NO_TOOL_CALLS

    spec = rollout_spec(agent=agent)
    await play_all(episode_specs(ADD), spec, scripted(policy))
    read = timeline.digest(encode("^uSo?$^a"))
    of_episode = episode_specs(ADD)[0].seed
    assert seeds == [
        hashing.seed(of_episode, "planner", read, 0),
        hashing.seed(of_episode, "critic", read, 0),
        hashing.seed(of_episode, "planner", read, 1),
    ]


async def test_a_speaker_that_cannot_be_is_refused_with_the_way_out() -> None:
    told: list[str] = []

    async def agent(episode: Episode) -> Ending:
        async def made() -> None:
            episode.speaker("worker")

        for attempt in (
            lambda: episode.speaker("a/b"),
            lambda: episode.speaker("agent", instance=1),
            lambda: episode.speaker("worker", tools=[up]),
        ):
            with pytest.raises(ValueError) as caught:
                attempt()
            told.append(str(caught.value))
        with pytest.raises(ValueError) as caught:
            await episode.gather(made(), made())
        told.append(str(caught.value))
        await episode.reply(*episode.opening)
        return Ending.NO_TOOL_CALLS

    await played(agent)
    values = (
        "'a/b' and 1",
        "speaker 'agent'",
        "'worker' needs .* Counter.*`tools`",
        "gather.*instance=1",
    )
    for value, text in zip(values, told, strict=True):
        assert re.search(value, text), text


async def test_what_any_speaker_says_is_trained() -> None:
    assert pack(await played(team)).trajectory.tolist() == [0, 2, 3]
