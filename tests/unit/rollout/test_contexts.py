"""Several contexts in an episode, and replies at the same time."""

import asyncio
from operator import attrgetter
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.authoring.tool import tool
from agentfly_core.inference.in_process import TransformersSampler
from agentfly_core.inference.templates.chatml import Hermes
from agentfly_core.records.parquet import read_trajectories, write_trajectories
from agentfly_core.records.trajectory import (
    Ending,
    Message,
    Observation,
    Problem,
    ToolCall,
    Trajectory,
)
from agentfly_core.rl.batch import pack
from agentfly_core.rollout.episode import Agent, Episode
from agentfly_core.rollout.speaker import Speaker
from agentfly_core.system.formats import hashing
from agentfly_core.testing.episodes import (
    ADD,
    episode_specs,
    play,
    play_all,
    rollout_spec,
)
from agentfly_core.testing.letters import decode
from agentfly_core.tools.answer import answer
from tests.support.policies import numbered


def user(text: str) -> Message:
    return Message("user", text)


async def played(agent: Agent, **rules: int) -> Trajectory:
    """An episode of this agent, in which the reply number 3 is `r3`."""
    return await play(numbered, spec=rollout_spec(agent=agent, max_turns=20, **rules))


def rows(trajectory: Trajectory) -> list[tuple[str, str]]:
    """The text of each row that is trained, and below it `x` where a token was sampled."""
    batch = pack([trajectory])
    return [
        (decode(row[:length]), "".join(".x"[taught] for taught in mask[:length]))
        for row, mask, length in zip(
            batch.tokens.tolist(), batch.sampled.tolist(), batch.lengths.tolist(), strict=True
        )
    ]


async def test_two_contexts_that_take_turns_are_two_rows(tmp_path: Path) -> None:
    async def agent(episode: Episode) -> Ending:
        aside = episode.context(user("Sum up."))
        await episode.reply(*episode.opening)
        await aside.reply()
        await episode.reply(user("Sure?"))
        await aside.reply(user("Shorter."))
        return Ending.NO_TOOL_CALLS

    trajectory = await played(agent)
    assert [(turn.context, turn.call) for turn in trajectory.turns] == [
        (0, 0),
        (1, 1),
        (0, 2),
        (1, 3),
    ]
    assert rows(trajectory) == [
        ("^u41+58?$^ar0$^uSure?$^ar2$", "...........xxx..........xxx"),
        ("^uSum up.$^ar1$^uShorter.$^ar3$", "............xxx.............xxx"),
    ]
    assert trajectory.answer == "r3"
    write_trajectories(tmp_path / "t.parquet", [trajectory])
    assert read_trajectories(tmp_path / "t.parquet") == [trajectory]


async def test_a_conversation_goes_on_in_the_context_that_it_begins_with() -> None:
    async def agent(episode: Episode) -> Ending:
        said: list[Message | Observation] = [*episode.opening]
        for text in ("Sure?", "Really?"):
            said += [await episode.reply_to(said), user(text)]
        await episode.reply_to([user("Something else.")])
        await episode.reply_to(said)
        return Ending.NO_TOOL_CALLS

    trajectory = await played(agent)
    assert rows(trajectory) == [
        (
            "^u41+58?$^ar0$^uSure?$^ar1$^uReally?$^ar3$",
            "...........xxx..........xxx............xxx",
        ),
        ("^uSomething else.$^ar2$", "....................xxx"),
    ]


async def test_a_token_that_stands_in_three_rows_is_trained_in_the_first() -> None:
    async def agent(episode: Episode) -> Ending:
        begun = [*episode.opening, await episode.reply(*episode.opening)]
        for text in ("Sure?", "Why?", "How?"):
            await episode.reply_to([*begun, user(text)])
        return Ending.NO_TOOL_CALLS

    assert rows(await played(agent)) == [
        ("^u41+58?$^ar0$^uSure?$^ar1$", "...........xxx..........xxx"),
        ("^u41+58?$^ar0$^uWhy?$^ar2$", ".......................xxx"),
        ("^u41+58?$^ar0$^uHow?$^ar3$", ".......................xxx"),
    ]


async def test_what_the_model_said_is_read_again_as_it_was_sampled() -> None:
    async def padded(conversation: Conversation) -> str:
        return ("<calculator  expression=1>", "ok", "ok")[conversation.turn]

    async def agent(episode: Episode) -> Ending:
        reply = await episode.reply(*episode.opening)
        await episode.reply(user("A?"))
        await episode.reply_to([*episode.opening, reply, user("B?")])
        return Ending.NO_TOOL_CALLS

    trajectory = await play(padded, spec=rollout_spec(agent=agent))
    assert rows(trajectory)[1][0] == "^u41+58?$^a<calculator  expression=1>$^uB?$^aok$"


async def test_each_context_may_have_as_many_tokens_as_the_model_reads() -> None:
    async def agent(episode: Episode) -> Ending:
        for _ in range(3):
            context = episode.context(*episode.opening)
            await context.reply()
            assert (context.tokens, len(context.messages)) == (14, 2)
        await episode.reply(user("Much longer than before."))
        return Ending.NO_TOOL_CALLS

    trajectory = await played(agent, max_model_len=14)
    assert (trajectory.ending, len(trajectory.turns)) == (Ending.MAX_MODEL_LEN, 3)


async def test_replies_of_all_contexts_count() -> None:
    async def agent(episode: Episode) -> Ending:
        while True:
            await episode.context(*episode.opening).reply()

    trajectory = await play(numbered, spec=rollout_spec(agent=agent, max_turns=3))
    assert (trajectory.ending, len(trajectory.turns)) == (Ending.MAX_TURNS, 3)


async def test_an_agent_says_the_answer_and_may_go_on() -> None:
    async def agent(episode: Episode) -> Ending:
        await episode.reply(*episode.opening)
        episode.answer("98")
        await episode.reply(user("Sure?"))
        episode.answer("99")
        return Ending.MAX_TURNS

    assert (await played(agent)).answer == "99"


async def test_seeds_of_a_single_conversation_follow_its_reply_numbers() -> None:
    seeds: list[int] = []

    async def policy(conversation: Conversation) -> str:
        seeds.append(conversation.seed)
        return "ok"

    async def agent(episode: Episode) -> Ending:
        await episode.reply(*episode.opening)
        await episode.reply(user("Sure?"))
        for _ in range(2):
            await episode.context(*episode.opening).reply()
        await episode.reply(user("Really?"))
        return Ending.NO_TOOL_CALLS

    await play(policy, spec=rollout_spec(agent=agent, max_turns=9))
    seed = episode_specs(ADD)[0].seed
    assert seeds[:2] == [hashing.seed(seed, 0), hashing.seed(seed, 1)]
    assert len(set(seeds)) == 5, "the same prompt once more has a seed of its own"


async def test_replies_at_the_same_time_within_a_branch_are_refused() -> None:
    async def agent(episode: Episode) -> Ending:
        await asyncio.gather(
            episode.context(user("A?")).reply(), episode.context(user("B?")).reply()
        )
        return Ending.NO_TOOL_CALLS

    with pytest.raises(ValueError, match=r"await episode.gather\(one\(\), another\(\)\)"):
        await played(agent)


async def test_branches_share_a_time_and_have_an_order() -> None:
    async def agent(episode: Episode) -> Ending:
        async def think(text: str) -> str:
            thought = episode.context(user(text))
            first = await thought.reply()
            return first.content + (await thought.reply(user("On."))).content

        assert await episode.gather(think("A?"), think("B?")) == ["r0r1", "r0r1"]
        await episode.reply(*episode.opening)
        return Ending.NO_TOOL_CALLS

    trajectory = await played(agent)
    assert [turn.call for turn in trajectory.turns] == [0, 0, 1, 1, 2]
    assert [turn.context for turn in trajectory.turns] == [0, 1, 0, 1, 2]


async def test_an_error_in_a_branch_is_raised_when_all_have_ended() -> None:
    async def agent(episode: Episode) -> Ending:
        async def ends() -> None:
            await episode.call(ToolCall("answer", {"answer": "7"}))

        async def replies() -> None:
            await episode.context(user("A?")).reply()
            await episode.context(user("B?")).reply()

        await episode.gather(ends(), replies())
        raise AssertionError("the episode is over")

    rules = rollout_spec(answer, agent=agent)
    trajectory = await play(numbered, spec=rules)
    assert (trajectory.ending, trajectory.answer) == (Ending.TERMINAL, "7")
    assert len(trajectory.turns) == 2


@pytest.mark.slow
@pytest.mark.parametrize("apart", [False, True], ids=["one speaker", "a speaker each"])
async def test_the_order_of_tool_results_leaves_the_record_unchanged(
    nano: Path, tmp_path: Path, apart: bool
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(nano)
    sampler = TransformersSampler()
    sampler.load(nano, 3)

    async def written(name: str, first: int) -> bytes:
        passed = [asyncio.Event(), asyncio.Event()]
        passed[first].set()

        @tool(name="look")
        async def look(place: int) -> str:
            await passed[place].wait()
            passed[1 - place].set()
            return f"look {place}"

        async def agent(episode: Episode) -> Ending:
            async def branch(place: int) -> None:
                speaker: Speaker = episode
                if apart:
                    speaker = episode.speaker("looker", tools=[look], instance=place + 1)
                context = speaker.context(user(f"{place}+1?"))
                await context.reply()
                seen = await speaker.call(ToolCall("look", {"place": place}))
                await context.reply(*seen)
                await speaker.context(user("The same?")).reply()

            await episode.reply(*episode.opening)
            await episode.gather(branch(0), branch(1))
            await episode.reply(user("So?"))
            return Ending.NO_TOOL_CALLS

        rules = rollout_spec(
            look,
            agent=agent,
            max_turns=20,
            max_tokens=12,
            template=Hermes(tokenizer, show_tools=False),
        )
        found, *_ = await play_all(episode_specs(ADD, Problem("b", "1+2?")), rules, sampler)
        write_trajectories(tmp_path / name, found)
        return (tmp_path / name).read_bytes()

    one, other = await written("a", first=0), await written("b", first=1)
    assert one == other
    first = [t for t in read_trajectories(tmp_path / "a") if t.problem == ADD]
    turns = sorted((turn for t in first for turn in t.turns), key=attrgetter("call"))
    assert [turn.call for turn in turns] == [0, 1, 1, 2, 2, 3, 3, 4]
    assert len({(t.agent, turn.context) for t in first for turn in t.turns}) == 5
    assert {t.agent for t in first} == ({"agent", "looker", "looker/2"} if apart else {"agent"})
    same = [turn.sampled[0].tokens for turn in turns if turn.call == 3]
    assert same[0] != same[1], "branches that read the same have seeds of their own"
