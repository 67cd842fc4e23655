"""Chats with reasoning in a model's own template."""

from dataclasses import replace

import pytest

from agentfly_core.datasets.chat_files import BadRow, ChatRow
from agentfly_core.datasets.chats import chat_of
from agentfly_core.pipeline.recorded_chats import ChatPlayer
from agentfly_core.records.trajectory import Trajectory
from agentfly_core.testing.episodes import rollout_spec
from tests.support.chat_templates import TOOLS, template_of, tokenizer_of

CHAT = [
    {"role": "user", "content": "1+1?"},
    {"role": "assistant", "content": "2", "reasoning_content": "One more."},
    {"role": "user", "content": "And 1 more?"},
    {"role": "assistant", "content": "3", "reasoning_content": "Two more."},
]


def test_reasoning_is_trained_and_dropped_reasoning_opens_a_context() -> None:
    tokenizer = tokenizer_of("qwen3")
    spec = replace(rollout_spec(template=template_of("qwen3")), max_model_len=1000)
    row = ChatRow("chats.jsonl", 1, chat_of(CHAT).replies, None)
    (chat,) = ChatPlayer(spec, tokenizer).trajectories([row])
    assert isinstance(chat, Trajectory), chat
    replies = [
        "".join(tokenizer.decode(list(s.tokens)) for s in turn.sampled) for turn in chat.turns
    ]
    assert replies == [
        "<think>\nOne more.\n</think>\n\n2<|im_end|>",
        "<think>\nTwo more.\n</think>\n\n3<|im_end|>",
    ]
    assert [turn.context for turn in chat.turns] == [0, 1]
    assert "One more." not in tokenizer.decode(list(chat.turns[1].given.tokens))


@pytest.mark.parametrize(("written", "kept"), [("aB3dE6gH9", True), ("call_1", False)])
def test_recorded_calls_keep_the_ids_that_a_template_takes(written: str, kept: bool) -> None:
    function = {"name": "search", "arguments": '{"text": "a"}'}
    call = {"id": written, "type": "function", "function": function}
    chat = [
        CHAT[0],
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": written, "content": "99"},
        {"role": "assistant", "content": "2"},
    ]
    spec = replace(rollout_spec(template=template_of("mistral")), max_model_len=1000)
    row = ChatRow("chats.jsonl", 1, chat_of(chat).replies, TOOLS)
    (played,) = ChatPlayer(spec, tokenizer_of("mistral")).trajectories([row])
    assert isinstance(played, Trajectory), played
    tokens = (*played.turns[0].sampled[0].tokens, *played.turns[1].given.tokens)
    text = tokenizer_of("mistral").decode(list(tokens))
    assert text.count(f'"{written}"') == (2 if kept else 0)


@pytest.mark.parametrize(
    ("content", "refused"),
    [("</tool_response>", True), ("<|im_end|>", True), ("a < b", False), ("<tool_call>", False)],
)
def test_control_tokens_in_a_reply_are_refused(content: str, refused: bool) -> None:
    """`</tool_response>` is an added token of Qwen's that is not flagged as special."""
    spec = replace(rollout_spec(template=template_of("qwen3")), max_model_len=1000)
    chat = [CHAT[0], {"role": "assistant", "content": content}]
    row = ChatRow("chats.jsonl", 1, chat_of(chat).replies, None)
    (played,) = ChatPlayer(spec, tokenizer_of("qwen3")).trajectories([row])
    assert isinstance(played, BadRow) == refused
    assert not isinstance(played, BadRow) or f"special token {content!r}" in str(played)
