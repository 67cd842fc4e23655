"""Exported chats: a chat for each conversation of a speaker."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentfly_core import Ending, Episode, Message
from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.datasets.chat_files import ChatRow
from agentfly_core.datasets.chats import chat_of
from agentfly_core.pipeline.play.exported import export
from agentfly_core.pipeline.recorded_chats import ChatPlayer
from agentfly_core.records.trajectory import Trajectory
from agentfly_core.testing import play, rollout_spec
from tests.support.chat_templates import template_of, tokenizer_of


def user(text: str) -> Message:
    return Message("user", text)


async def fresh(episode: Episode) -> Ending:
    """Two conversations in turns; the second one inserts a word into the first message."""
    red, blue = episode.context(), episode.context()
    await red.reply(user("Name it."))
    await blue.reply(user("Name all of it."))
    await red.reply(user("Again red."))
    await blue.reply(user("Again blue."))
    return Ending.NO_TOOL_CALLS


async def branches(episode: Episode) -> Ending:
    begun = [user("Q"), await episode.reply_to([user("Q")])]
    await episode.reply_to([*begun, user("Why?")])
    await episode.reply_to([*begun, user("Doubt?")])
    return Ending.NO_TOOL_CALLS


async def numbered(conversation: Conversation) -> str:
    return f"reply {conversation.turn}"


def rows(file: Path) -> list[Any]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def exported(trajectory: Trajectory, folder: Path) -> list[list[Any]]:
    """The texts of each chat; a reply that is not trained in brackets."""
    export([trajectory], "", folder)
    return [
        [one["content"] if one.get("train", True) else [one["content"]] for one in row["messages"]]
        for row in rows(folder / "chats.jsonl")
    ]


@pytest.mark.parametrize(
    ("agent", "chats"),
    [
        (
            fresh,
            [
                ["Name it.", "reply 0", "Again red.", "reply 2"],
                ["Name all of it.", "reply 1", "Again blue.", "reply 3"],
            ],
        ),
        (
            branches,
            [["Q", "reply 0", "Why?", "reply 1"], ["Q", ["reply 0"], "Doubt?", "reply 2"]],
        ),
    ],
)
async def test_each_conversation_is_a_chat(agent: Any, chats: list[Any], tmp_path: Path) -> None:
    trajectory = await play(numbered, spec=rollout_spec(agent=agent))
    assert exported(trajectory, tmp_path / "out") == chats
    (trace,) = rows(tmp_path / "out/traces.jsonl")
    last = [one["content"] for one in trace["turns"][-1]["request"]["messages"]]
    assert last == [text[0] if isinstance(text, list) else text for text in chats[-1][:-1]]


def test_a_history_written_again_stays_one_chat(tmp_path: Path) -> None:
    """Qwen3 omits earlier reasoning, so the second reply opens a context."""
    chat = [
        {"role": "user", "content": "1+1?"},
        {"role": "assistant", "content": "2", "reasoning_content": "One more."},
        {"role": "user", "content": "And 1 more?"},
        {"role": "assistant", "content": "3", "reasoning_content": "Two more."},
    ]
    spec = replace(rollout_spec(template=template_of("qwen3")), max_model_len=1000)
    row = ChatRow("chats.jsonl", 1, chat_of(json.dumps(chat)).replies, None)
    (trajectory,) = ChatPlayer(spec, tokenizer_of("qwen3")).trajectories([row])
    assert isinstance(trajectory, Trajectory)
    assert [turn.context for turn in trajectory.turns] == [0, 1]
    export([trajectory], "", tmp_path / "out")
    (written,) = rows(tmp_path / "out/chats.jsonl")
    assert written["messages"] == chat


async def test_each_trajectory_without_a_row_is_counted(tmp_path: Path) -> None:
    async def nul(conversation: Conversation) -> str:
        return "a\0b"

    spec = rollout_spec(agent=branches)
    whole, with_nul = [await play(reply, spec=spec) for reply in (numbered, nul)]
    foreign = replace(whole, turns=tuple(replace(turn, sampled=()) for turn in whole.turns))
    assert export([whole, with_nul, foreign], "", tmp_path / "out") == {
        "chats.jsonl": 4,
        "traces.jsonl": 1,
        "left out": 3,  # two chats and the trace
        "without token ids": 1,
    }
