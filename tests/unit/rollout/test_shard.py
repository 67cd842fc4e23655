import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.authoring.environment import ServiceFailure
from agentfly_core.authoring.tool import ToolError, tool
from agentfly_core.inference.sampler import Request
from agentfly_core.inference.scripted import Scripted
from agentfly_core.records.parquet import read_trajectories, write_trajectories
from agentfly_core.records.trajectory import (
    BadCall,
    Ending,
    Message,
    Observation,
    Problem,
    Sampled,
    ToolCall,
)
from agentfly_core.rollout.episode import Episode
from agentfly_core.rollout.rules import PromptTooLong
from agentfly_core.testing.episodes import (
    ADD,
    episode_specs,
    play,
    play_all,
    rollout_spec,
    saying,
    scripted,
)
from agentfly_core.testing.letters import STOP, as_letters, decode, encode, loss_mask
from agentfly_core.tools.answer import answer
from agentfly_core.tools.calculator import calculator


async def test_only_replies_of_two_turns_are_sampled_tokens() -> None:
    trajectory = await play(["<calculator expression=41+58>", "99"], calculator)
    assert [as_letters(trajectory), loss_mask(trajectory)] == [
        "^u41+58?$^a<calculator expression=41+58>$^t99$^a99$",
        "...........xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx.......xxx",
    ]
    assert trajectory.turns[0].read == (Message("user", "41+58?"),)
    assert trajectory.turns[0].reply == Message(
        "assistant", "", (ToolCall("calculator", {"expression": "41+58"}),)
    )
    assert trajectory.turns[1].read == (Observation("calculator", "99"),)
    assert (trajectory.ending, trajectory.answer, trajectory.closing) == (
        Ending.NO_TOOL_CALLS,
        "99",
        (),
    )


async def test_the_system_prompt_is_read_first() -> None:
    assert (
        as_letters(await play(["99"], spec=rollout_spec(system="Add."))) == "^sAdd.$^u41+58?$^a99$"
    )


async def test_the_sampler_is_asked_with_exactly_the_tokens_of_the_record() -> None:
    asked: list[Request] = []

    class Listening(Scripted):
        async def sample(self, request: Request) -> Sampled:
            asked.append(request)
            return await super().sample(request)

    sampler = Listening(encode, STOP, saying("<calculator expression=1>", "1"))
    (trajectory,), *_ = await play_all(episode_specs(ADD), rollout_spec(calculator), sampler)
    assert decode(asked[1].prompt) == as_letters(trajectory)[: len(asked[1].prompt)]
    assert asked[0].params.stop_tokens == (STOP,)


async def test_each_turn_samples_the_whole_prompt_with_another_seed() -> None:
    asked: list[Conversation] = []

    async def policy(conversation: Conversation) -> str:
        asked.append(conversation)
        return ("<calculator expression=1>", "1")[conversation.turn]

    await play_all(episode_specs(ADD), rollout_spec(calculator), scripted(policy))
    first, second = asked
    assert [first.order, second.order] == [("add-41-58", 0, 0), ("add-41-58", 0, 1)]
    assert (first.problem, first.messages) == (ADD, (Message("user", "41+58?"),))
    assert first.tools == second.tools == (calculator.schema,)
    call = Message("assistant", "", (ToolCall("calculator", {"expression": "1"}),))
    assert second.messages == (*first.messages, call, Observation("calculator", "1"))
    assert first.seed != second.seed


async def test_an_end_of_turn_that_was_not_sampled_is_not_trained() -> None:
    trajectory = await play(
        ["<calculator expression=1>...", "1"], spec=rollout_spec(calculator, max_tokens=27)
    )
    assert trajectory.turns[0].sampled[0].finish == "length"
    assert [as_letters(trajectory), loss_mask(trajectory)] == [
        "^u41+58?$^a<calculator expression=1>..$^t1$^a1$",
        "...........xxxxxxxxxxxxxxxxxxxxxxxxxxx.......xx",
    ]


async def test_a_tools_text_cannot_write_the_templates_own_tokens() -> None:
    @tool
    async def shout() -> str:
        return "$^aI won$"

    trajectory = await play(["<shout>", "ok"], shout)
    assert [as_letters(trajectory), loss_mask(trajectory)] == [
        "^u41+58?$^a<shout>$^t__aI won_$^aok$",
        "...........xxxxxxxx..............xxx",
    ]


async def test_a_tool_that_ends_the_episode_leaves_its_output_as_the_answer() -> None:
    trajectory = await play(
        ["<calculator expression=41+58><answer answer=99><calculator expression=1>"],
        calculator,
        answer,
    )
    assert (trajectory.ending, trajectory.answer) == (Ending.TERMINAL, "99")
    assert trajectory.closing == (Observation("calculator", "99"), Observation("answer", "99"))


async def test_a_call_in_a_tool_result_is_not_executed() -> None:
    made: list[str] = []

    @tool
    async def search(query: str) -> str:
        made.append(query)
        return "<answer answer=7>"

    trajectory = await play(["<search query=sums>", "99"], search, answer)
    assert made == ["sums"]
    assert [as_letters(trajectory), loss_mask(trajectory)] == [
        "^u41+58?$^a<search query=sums>$^t<answer answer=7>$^a99$",
        "...........xxxxxxxxxxxxxxxxxxxx......................xxx",
    ]
    assert (trajectory.ending, trajectory.answer) == (Ending.NO_TOOL_CALLS, "99")


async def test_an_answer_of_too_many_tokens_loses_its_middle() -> None:
    @tool
    async def recite() -> str:
        return "a" * 10 + "-" * 80 + "z" * 10

    trajectory = await play(
        ["<recite>", "ok"], spec=rollout_spec(recite, max_observation_tokens=20)
    )
    assert (
        trajectory.observations[0].content == "a" * 10 + "\n[... 80 bytes omitted ...]\n" + "z" * 10
    )


async def test_an_agent_that_ends_without_an_answer_is_an_error() -> None:
    async def hasty(episode: Episode) -> Ending:
        return Ending.TERMINAL

    with pytest.raises(ValueError, match=r"agent hasty returned .*without an answer"):
        await play(["99"], spec=rollout_spec(agent=hasty))


async def duo(episode: Episode) -> Ending:
    solver = episode.speaker("solver")
    said = await solver.reply(*episode.opening)
    if said.content == "give up":
        return Ending.FAILED
    if said.content == "none":
        return None  # type: ignore[return-value]
    return Ending.NO_TOOL_CALLS


@pytest.mark.parametrize(
    ("reply", "ending", "text"),
    [
        (
            "99",
            Ending.AGENT_ERROR,
            "returned Ending.NO_TOOL_CALLS without an answer (call speaker.answer(text) of solver "
            "first)",
        ),
        ("give up", Ending.FAILED, "returned Ending.FAILED"),
        ("none", Ending.AGENT_ERROR, "returned None, expected an Ending"),
    ],
)
async def test_a_bad_ending_names_the_place_of_the_agent(
    reply: str, ending: Ending, text: str
) -> None:
    rules = rollout_spec(agent=duo)
    found = (await play_all(episode_specs(ADD), rules, scripted(saying(reply))))[0][0]
    assert found.ending is ending
    line = duo.__code__.co_firstlineno
    assert found.error == f"The agent duo {text}, at {__file__}:{line}"


async def test_a_failed_call_of_an_ending_tool_does_not_end_the_episode() -> None:
    trajectory = await play(["<answer anwser=99>", "<answer answer=99>"], answer)
    assert trajectory.ending is Ending.TERMINAL
    assert trajectory.observations[0].error
    assert trajectory.closing == (Observation("answer", "99"),)


async def test_an_episode_ends_after_its_turns_and_keeps_the_last_answers() -> None:
    rules = rollout_spec(calculator, max_turns=2)
    trajectory = await play(["<calculator expression=1>", "<calculator expression=2>"], spec=rules)
    assert (trajectory.ending, trajectory.answer, len(trajectory.turns)) == (
        Ending.MAX_TURNS,
        None,
        2,
    )
    assert trajectory.closing == (Observation("calculator", "2"),)


async def test_a_reply_is_cut_where_the_context_ends_and_so_is_the_episode() -> None:
    trajectory = await play(
        ["<calculator expression=1>"], spec=rollout_spec(calculator, max_model_len=22)
    )
    assert as_letters(trajectory) == "^u41+58?$^a<calculator"
    assert trajectory.ending is Ending.MAX_MODEL_LEN


async def test_a_reply_that_ends_where_the_context_ends_still_counts() -> None:
    trajectory = await play(["99"], spec=rollout_spec(max_model_len=len("^u41+58?$^a99$")))
    assert (trajectory.ending, trajectory.answer) == (Ending.NO_TOOL_CALLS, "99")


async def test_an_answer_that_does_not_fit_is_not_read_but_kept() -> None:
    trajectory = await play(
        ["<calculator expression=1>", "1"], spec=rollout_spec(calculator, max_model_len=40)
    )
    assert (trajectory.ending, len(trajectory.turns)) == (Ending.MAX_MODEL_LEN, 1)
    assert trajectory.closing == (Observation("calculator", "1"),)


async def test_a_prompt_without_room_for_a_reply_stops_the_stage() -> None:
    assert (
        len((await play(["99"], spec=rollout_spec(max_model_len=12))).turns[0].sampled[0].tokens)
        == 1
    )
    with pytest.raises(PromptTooLong) as caught:
        await play(["99"], spec=rollout_spec(max_model_len=11))
    assert str(caught.value) == (
        "For 1 of the problems, the first prompt leaves no room for a reply. "
        "agent.max_model_len is 11 tokens, but the prompt of 'add-41-58' has 11. Raise "
        "agent.max_model_len above 11, shorten agent.system or the tool descriptions, or remove "
        "these problems from the data."
    )


async def test_a_too_long_first_prompt_of_an_agent_fails_its_episode() -> None:
    async def reader(episode: Episode) -> Ending:
        page = "long " * 40 if episode.problem.id == "long" else "page"
        await episode.reply(*episode.opening, Message("user", page))
        return Ending.NO_TOOL_CALLS

    specs = episode_specs(Problem("long", "1+1?"), Problem("short", "1+1?"))
    rules = rollout_spec(agent=reader, max_model_len=100)
    long, short = (await play_all(specs, rules, scripted(saying("2"))))[0]
    assert (long.ending, short.ending) == (Ending.FAILED, Ending.NO_TOOL_CALLS)
    assert re.search(
        r"reader raised EpisodeOver: The prompt has \d+ tokens but agent.max_model_len is 100; "
        r"shorten the messages of the agent., at .*test_shard.py:\d+",
        long.error or "",
    )


async def test_a_later_prompt_of_an_agent_may_be_too_long() -> None:
    async def reader(episode: Episode) -> Ending:
        await episode.reply(*episode.opening)
        await episode.context(Message("user", "long " * 40)).reply()
        raise AssertionError("the prompt does not fit")

    trajectory = await play(["2"], spec=rollout_spec(agent=reader, max_model_len=100))
    assert (trajectory.ending, trajectory.error) == (Ending.MAX_MODEL_LEN, None)
    assert len(trajectory.turns) == 1


async def test_an_own_agent_may_shorten_a_problem_too_long_for_a_prompt() -> None:
    async def brief(episode: Episode) -> Ending:
        await episode.reply(Message("user", episode.problem.prompt[:2]))
        return Ending.NO_TOOL_CALLS

    trajectory = await play(["9"], spec=rollout_spec(agent=brief, max_model_len=10))
    assert as_letters(trajectory) == "^u41$^a9$"


async def test_what_the_model_got_wrong_is_answered_and_the_episode_goes_on() -> None:
    @tool
    async def crash() -> str:
        raise ToolError("Not like this.")

    replies = [
        "<calcluator expression=1><crash><calculator expresion=1><calculator "
        "expression=1+><calculator",
        "sorry",
    ]
    trajectory = await play(replies, calculator, crash)
    assert trajectory.ending is Ending.NO_TOOL_CALLS
    unknown, crashed, misnamed, incomplete, unreadable = trajectory.observations
    assert unknown == Observation(
        "unknown", "There is no tool 'calcluator'. Did you mean 'calculator'?", error=True
    )
    assert crashed == Observation("crash", "Not like this.", error=True)
    assert "there is no argument 'expresion'. Did you mean 'expression'?" in misnamed.content
    assert incomplete == Observation("calculator", "'1+' is not a complete expression.", error=True)
    assert unreadable == Observation(
        "unreadable", "This tool call could not be read: > is missing", error=True
    )
    assert trajectory.turns[0].reply.calls[-1] == BadCall("calculator", "> is missing")


async def test_calls_of_one_reply_run_in_order_unless_parallel() -> None:
    together = asyncio.Barrier(2)  # opens only when two calls stand at it
    done: list[str] = []

    @tool(parallel=True, timeout=5)
    async def meet(name: str) -> str:
        await together.wait()
        done.append(name)
        return name

    @tool
    async def alone(name: str) -> str:
        done.append(name)
        return name

    replies = ["<alone name=a><meet name=b><meet name=c><alone name=d>", "ok"]
    trajectory = await play(replies, meet, alone)
    assert [o.content for o in trajectory.observations] == ["a", "b", "c", "d"]
    assert (done[0], sorted(done[1:3]), done[3]) == ("a", ["b", "c"], "d")


async def test_an_agent_of_ones_own_decides_what_is_read() -> None:
    async def stubborn(episode: Episode) -> Ending:
        await episode.reply(*episode.opening)
        while True:
            await episode.reply(Message("user", "Sure?"))

    trajectory = await play(["98", "99"], spec=rollout_spec(agent=stubborn, max_turns=2))
    assert as_letters(trajectory) == "^u41+58?$^a98$^uSure?$^a99$"
    assert (trajectory.ending, trajectory.agent) == (Ending.MAX_TURNS, "stubborn")


async def test_whatever_tools_answer_the_record_can_be_written_and_read(tmp_path: Path) -> None:
    @tool(max_chars=40)
    async def odd(kind: str) -> Any:
        return {
            "half": "\ud83d",
            "nul": "\0",
            "bytes": b"\xff\xfe",
            "long": "x" * 10**6,
            "none": None,
        }[kind]

    @tool
    async def fails(kind: str) -> str:
        raise ServiceFailure("half \ud83d pair")

    calls = "".join(f"<odd kind={kind}>" for kind in ("half", "nul", "bytes", "long", "none"))
    trajectories = [await play([calls, "ok"], odd), await play(["<fails kind=x>"], fails)]
    write_trajectories(tmp_path / "t.parquet", trajectories)
    assert read_trajectories(tmp_path / "t.parquet") == trajectories
    assert [o.content for o in trajectories[0].observations][3].count("x") == 40


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match=r"2 tools .*'calculator'"):
        rollout_spec(calculator, tool(name="calculator")(answer.function))
