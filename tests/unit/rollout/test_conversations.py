"""Episodes of problems that begin with several messages or select tools."""

from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.records.parquet import read_problems, write_problems
from agentfly_core.records.trajectory import Message, Observation, Problem
from agentfly_core.testing.episodes import ADD, play, rollout_spec
from agentfly_core.testing.letters import as_letters, loss_mask
from agentfly_core.tools.answer import answer
from agentfly_core.tools.calculator import calculator

EARLIER = (
    Message("user", "1+1?"),
    Message("assistant", "<calculator expression=1+1>"),
    Observation("calculator", "2"),
    Message("assistant", "2"),
    Message("user", "+1?"),
)
CONTINUED = Problem("more", "+1?", {"answer": "3"}, messages=EARLIER)
BRIEF = Problem("brief", "1?", messages=(Message("system", "Be brief."), Message("user", "1?")))


async def test_earlier_replies_are_read_and_never_trained() -> None:
    trajectory = await play(["3"], problem=CONTINUED)
    assert [as_letters(trajectory), loss_mask(trajectory)] == [
        "^u1+1?$^a<calculator expression=1+1>$^t2$^a2$^u+1?$^a3$",
        ".....................................................xx",
    ]
    assert trajectory.turns[0].read == EARLIER


async def test_a_problem_selects_tools_of_the_experiment() -> None:
    seen = []

    async def policy(conversation: Conversation) -> str:
        seen.append([tool.name for tool in conversation.tools])
        return "<calculator expression=1+1>" if conversation.turn == 0 else "2"

    only = replace(ADD, tools=("answer",))
    trajectory = await play(policy, calculator, answer, problem=only)
    assert seen == [["answer"], ["answer"]]
    assert trajectory.turns[1].read[0].content.startswith("There is no tool 'calculator'.")
    await play(policy, calculator, answer, problem=replace(ADD, tools=()))
    assert seen[2:] == [[], []]
    await play(policy, calculator, answer)
    assert seen[4:] == [["calculator", "answer"], ["calculator", "answer"]]


def test_an_unknown_tool_is_refused() -> None:
    message = (
        r"'p' selects the tool 'anser', but the tools of the experiment are: calculator, answer. "
        r".* Did you mean"
    )
    spec = rollout_spec(calculator, answer)
    with pytest.raises(ValueError, match=message):
        spec.of(Problem("p", "1?", tools=("anser",)))
    assert spec.of(Problem("p", "1?", tools=("answer",))).tools == (answer,)


def test_a_second_system_message_is_refused() -> None:
    message = r"'brief' has a system message, 'Be brief\.', and agent\.system is 'Add\.'"
    with pytest.raises(ValueError, match=message):
        rollout_spec(system="Add.").opening(BRIEF)
    assert rollout_spec().opening(BRIEF) == BRIEF.messages


def test_only_a_dataset_of_chats_has_their_columns(tmp_path: Path) -> None:
    path = tmp_path / "train.parquet"
    for problems, columns in (
        ([ADD], ["id", "prompt", "facts", "task"]),
        ([ADD, CONTINUED], ["id", "prompt", "facts", "task", "messages", "tools"]),
        ([replace(ADD, tools=())], ["id", "prompt", "facts", "task", "messages", "tools"]),
    ):
        write_problems(path, problems)
        assert pq.read_schema(path).names == columns
        assert read_problems(path) == problems
