"""Prompts of several messages, in the formats of chats."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agentfly_core.datasets.files import files, read
from agentfly_core.records.dataset import BadRow
from agentfly_core.records.trajectory import Message, Observation, Problem, ToolCall

SYSTEM, USER = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "1+1?"}
SAID = {"role": "assistant", "content": "2"}
CALLS = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "a", "function": {"name": "add", "arguments": '{"x": 1, "y": 1}'}},
        {"id": "b", "function": {"name": "say", "arguments": {"text": "ä"}}},
    ],
}
ANSWERS = [
    {"role": "tool", "tool_call_id": "b", "content": "said"},
    {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "2"}]},
]


def row_of(row: Any, path: Path) -> Problem | BadRow:
    path.write_text(json.dumps(row) + "\n")
    ((_, problem),) = read(path)
    return problem


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.jsonl"


@pytest.mark.parametrize("field", ["messages", "prompt", "conversations"])
def test_a_single_message_of_the_user_is_a_prompt(field: str, path: Path) -> None:
    for messages in ([USER], [USER, SAID]):
        row = row_of({field: messages, "answer": "2"}, path)
        assert row == row_of({"question": "1+1?", "answer": "2"}, path)


def test_the_prompt_of_messages_ends_before_the_last_reply(path: Path) -> None:
    row = row_of({"messages": [SYSTEM, USER, SAID, {"role": "user", "content": "+1?"}, SAID]}, path)
    assert isinstance(row, Problem)
    assert (row.prompt, row.facts) == ("+1?", {})
    assert row.messages == (
        Message("system", "Be brief."),
        Message("user", "1+1?"),
        Message("assistant", "2"),
        Message("user", "+1?"),
    )


def test_answers_of_tools_are_in_the_order_of_their_calls(path: Path) -> None:
    row = row_of({"messages": [USER, CALLS, *ANSWERS]}, path)
    assert isinstance(row, Problem)
    calls = (ToolCall("add", {"x": 1, "y": 1}), ToolCall("say", {"text": "ä"}))
    assert row.messages[1:] == (
        Message("assistant", "", calls),
        Observation("add", "2"),
        Observation("say", "said"),
    )


def test_reasoning_is_apart_from_content(path: Path) -> None:
    for name in ("reasoning_content", "reasoning"):
        row = row_of({"messages": [USER, {**SAID, name: "One more."}, USER]}, path)
        assert isinstance(row, Problem)
        assert row.messages[1] == Message("assistant", "2", reasoning="One more.")


def test_turns_of_sharegpt_are_messages(path: Path) -> None:
    turns = [
        {"from": "system", "value": "Be brief."},
        {"from": "human", "value": "1+1?"},
        {"from": "function_call", "value": '{"name": "add", "arguments": {"x": 1}}'},
        {"from": "observation", "value": "2"},
        {"from": "gpt", "value": "2"},
    ]
    row = row_of({"conversations": turns}, path)
    assert isinstance(row, Problem)
    assert row.messages == (
        Message("system", "Be brief."),
        Message("user", "1+1?"),
        Message("assistant", "", (ToolCall("add", {"x": 1}),)),
        Observation("add", "2"),
    )


def test_tools_are_selected_by_name_or_schema(path: Path) -> None:
    schema = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
    bare = {"name": "add", "description": None, "parameters": None}  # as parquet fills structs
    for listed in (["add"], [schema], [bare], [{"name": "add"}], '["add"]'):
        row = row_of({"question": "1+1?", "tools": listed}, path)
        assert isinstance(row, Problem)
        assert (row.tools, row.facts) == (("add",), {})
    row = row_of({"question": "1+1?", "tools": None}, path)
    assert isinstance(row, Problem)
    assert (row.tools, row.facts) == (None, {"tools": None})


def test_messages_of_parquet_and_csv_are_those_of_json_lines(tmp_path: Path) -> None:
    messages = [SYSTEM, USER, SAID, {"role": "user", "content": "+1?"}]
    expected = row_of({"messages": messages, "answer": "3"}, tmp_path / "a.jsonl")
    rows = pa.Table.from_pylist([{"messages": messages, "answer": "3"}])
    pq.write_table(rows, tmp_path / "a.parquet")
    cell = json.dumps(messages).replace('"', '""')
    (tmp_path / "a.csv").write_bytes(f'\ufeffmessages,answer\r\n"{cell}",3\r\n'.encode())
    for name in ("a.parquet", "a.csv"):
        ((_, row),) = read(tmp_path / name)
        assert row == expected, name


def test_the_same_question_after_other_messages_is_another_problem(tmp_path: Path) -> None:
    after = {"role": "user", "content": "And then?"}
    rows = [{"messages": [{**USER, "content": f"{n}+1?"}, SAID, after]} for n in range(3)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    built = files(0, 1, 1, 1, train_file=str(tmp_path / "a.jsonl"))
    assert [len(rows) for rows in built.values()] == [1, 1, 1]
    assert len({row.id for rows in built.values() for row in rows if isinstance(row, Problem)}) == 3


@pytest.mark.parametrize(
    ("messages", "fault"),
    [
        ([], "got [], expected a list of messages"),
        (["1+1?"], "message 1 has the value '1+1?': Input should be a valid dictionary"),
        ([{**USER, "role": "bot"}], "message 1 has role 'bot': Input should be 'system', 'user'"),
        ([{"content": "1+1?"}], "message 1: {'content': '1+1?'} lacks role"),
        ([{"role": "user"}], "message 1 has the role 'user' and is empty; add content"),
        ([USER, {"role": "assistant", "content": " "}, USER], "message 2 has the role 'assistant'"),
        ([{**USER, "content": [{"image": "x"}]}], "expected parts of the type 'text'; training"),
        ([USER, SYSTEM], "message 2 has the role 'system', which only the first message may"),
        ([SAID, USER], "message 1 has the role 'assistant', but no user message comes before it"),
        ([USER, SAID, SAID], "message 3 has the role 'assistant' after another"),
        ([USER, CALLS, USER], "message 3: the calls of add, say are not answered yet"),
        ([USER, ANSWERS[0]], "message 2: it answers the call 'b', expected"),
        (json.dumps([USER])[:-1], "it is a text, but not JSON"),
        ("[{'role': 'user'}]", "it is a text, but not JSON"),
    ],
)
@pytest.mark.parametrize("field", ["messages", "prompt"])
def test_unusable_messages_are_refused_with_their_number(
    messages: Any, fault: str, field: str, path: Path
) -> None:
    row = row_of({field: messages}, path)
    assert isinstance(row, BadRow)
    assert row.fault.startswith(f"the field {field!r}: ")
    assert fault in row.fault


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ({"messages": [SYSTEM]}, "its messages lack a user message"),
        ({"prompt": "2+2?", "messages": [USER]}, "end with different questions, so the prompt is"),
        ({"question": "1+1?", "tools": 3}, "the field 'tools' is 3, expected a list of tool names"),
        ({"question": "1+1?", "tools": "add"}, "the field 'tools' is 'add', expected a list"),
    ],
)
def test_an_ambiguous_row_is_refused(row: Any, fault: str, path: Path) -> None:
    refused = row_of(row, path)
    assert isinstance(refused, BadRow)
    assert fault in refused.fault


def test_two_calls_of_one_id_are_refused(path: Path) -> None:
    twice = {**CALLS, "tool_calls": [{**call, "id": "a"} for call in CALLS["tool_calls"]]}
    row = row_of({"messages": [USER, twice, *ANSWERS]}, path)
    assert isinstance(row, BadRow)
    assert "the id 'a' belongs to two calls" in row.fault


def test_a_tool_listed_twice_is_refused(path: Path) -> None:
    row = row_of({"prompt": "1+1?", "tools": ["add", "add"]}, path)
    assert isinstance(row, BadRow)
    assert "lists 'add' twice" in row.fault
