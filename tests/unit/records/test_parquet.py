"""The record on disk."""

import dataclasses

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agentfly_core.records import parquet
from agentfly_core.records.trajectory import (
    Branch,
    Message,
    Observation,
    Problem,
    Sampled,
    Scored,
    ToolCall,
    Unscored,
)
from tests.support.recorded_episode import FIRST, trajectory

A = "a" * 64


def test_a_trajectory_is_read_back_as_it_was_written(tmp_path):
    written = [
        trajectory(),
        dataclasses.replace(trajectory(), id="t1", chain=1, branch=Branch("t0", 1), error="lost"),
    ]
    parquet.write_trajectories(tmp_path / "t.parquet", reversed(written))
    assert parquet.read_trajectories(tmp_path / "t.parquet") == written


def test_every_field_of_a_turn_is_read_back(tmp_path):
    span = Sampled((4, 5), (-0.5, -0.25), 6, "stop_string", (0.75, 0.5), trained=False)
    reply = Message("assistant", "99", reasoning="41+58")
    full = dataclasses.replace(
        FIRST,
        reply=reply,
        sampled=(span,),
        context=3,
        temperature=0.7,
        state="shelf",
        reward=0.1,
        pictures=(A,),
        continues=2,
    )
    written = dataclasses.replace(
        trajectory(turns=(full,)), agent="searcher/2", answered="99", policy="https://example.org"
    )
    parquet.write_trajectories(tmp_path / "t.parquet", [written])
    (read,) = parquet.read_trajectories(tmp_path / "t.parquet")
    assert read == written
    assert (read.speaker, read.answer) == ("searcher", "99")


def test_a_prompt_of_several_messages_is_read_back(tmp_path):
    messages = (
        Message("user", "41+58?"),
        Message("assistant", "", (ToolCall("calculator", {"expression": "41+58"}),)),
        Observation("calculator", "99"),
        Message("user", "And 1 more?"),
    )
    problem = Problem("two", "And 1 more?", {"answer": "100"}, messages=messages)
    written = dataclasses.replace(trajectory(), problem=problem)
    parquet.write_trajectories(tmp_path / "t.parquet", [written])
    assert parquet.read_trajectories(tmp_path / "t.parquet") == [written]


def test_marks_of_a_reply_are_read_back(tmp_path):
    call = ToolCall("calculator", {"expression": "41+58"}, lenient=True, id="a1B2c3D4e")
    reply = Message("assistant", "99", (call,), cut=True, reasoning="41+58", rewritten=True)
    written = trajectory(turns=(dataclasses.replace(FIRST, reply=reply),))
    parquet.write_trajectories(tmp_path / "t.parquet", [written])
    ((turn,),) = (one.turns for one in parquet.read_trajectories(tmp_path / "t.parquet"))
    (read,) = turn.reply.calls
    assert (turn.reply.cut, turn.reply.rewritten) == (True, True)
    assert (read.lenient, read.id) == (True, "a1B2c3D4e")


def test_a_cut_reply_without_tokens_is_read_back_as_cut(tmp_path):
    reply = dataclasses.replace(FIRST.reply, calls=(), cut=True)
    turn = dataclasses.replace(FIRST, reply=reply, sampled=())
    written = trajectory(turns=(turn,))
    parquet.write_trajectories(tmp_path / "t.parquet", [written])
    (read,) = parquet.read_trajectories(tmp_path / "t.parquet")
    assert (read.turns[0].cut, read.answer) == (True, None)


def test_turns_are_stored_by_context_and_read_in_time_order(tmp_path):
    path = tmp_path / "t.parquet"
    written = trajectory(
        turns=tuple(dataclasses.replace(FIRST, context=context) for context in (0, 1, 0, 1))
    )
    parquet.write_trajectories(path, [written])
    (stored,) = pq.read_table(path)["turns"].to_pylist()
    assert [(turn["context"], turn["call"]) for turn in stored] == [(0, 0), (0, 2), (1, 1), (1, 3)]
    assert parquet.read_trajectories(path) == [written]


def test_text_that_is_not_unicode_survives(tmp_path):
    odd = dataclasses.replace(FIRST, read=(Message("user", "\ud800 \x00 é"),))
    parquet.write_trajectories(tmp_path / "t.parquet", [trajectory(turns=(odd,))])
    assert (
        parquet.read_trajectories(tmp_path / "t.parquet")[0].turns[0].read[0].content
        == "\ud800 \x00 é"
    )


def test_answers_and_states_that_are_not_unicode_are_stored(tmp_path):
    odd = dataclasses.replace(FIRST, state="room \udfff")
    written = dataclasses.replace(trajectory(turns=(odd,)), answered="9\ud8009")
    parquet.write_trajectories(tmp_path / "t.parquet", [written])
    (read,) = parquet.read_trajectories(tmp_path / "t.parquet")
    assert (read.answered, read.turns[0].state) == ("9?9", "room ?")


def test_the_same_trajectories_make_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        parquet.write_trajectories(tmp_path / name, [trajectory()])
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_missing_score_is_not_a_zero(tmp_path):
    written = [
        Scored("t0", {"exact": 0.0}, (), 0.0),
        Scored("t1", {}, (), Unscored("exact: TimeoutError")),
    ]
    parquet.write_scores(tmp_path / "s.parquet", written)
    assert parquet.read_scores(tmp_path / "s.parquet") == written
    assert pq.read_table(tmp_path / "s.parquet")["reward"].to_pylist() == [0.0, None]


def test_a_file_of_another_schema_is_refused(tmp_path):
    parquet.write_problems(tmp_path / "p.parquet", [])
    table = pq.read_table(tmp_path / "p.parquet").replace_schema_metadata({"agentfly.schema": "9"})
    pq.write_table(table, tmp_path / "p.parquet")
    message = r"p\.parquet has schema 9, expected schema 2: read it with the version"
    with pytest.raises(ValueError, match=message):
        parquet.read_problems(tmp_path / "p.parquet")


@pytest.mark.parametrize("change", ["lacks facts", "has mood"])
def test_a_file_with_other_columns_is_refused(tmp_path, change):
    parquet.write_problems(tmp_path / "p.parquet", [Problem("a", "What?", {"answer": "1"})])
    table = pq.read_table(tmp_path / "p.parquet")
    other = {
        "lacks facts": table.drop_columns(["facts"]),
        "has mood": table.append_column("mood", pa.array(["fine"])),
    }[change]
    pq.write_table(other, tmp_path / "p.parquet")
    with pytest.raises(ValueError, match=r"columns, .*schema 1"):
        parquet.read_problems(tmp_path / "p.parquet")
